"""A health check for images without curl: ``python -m pipeline.web.probe URL``; exit code 0 or 1.

The token that the web server may ask for is read from the file that its own setting names.
"""

import os
import sys
import urllib.request
from pathlib import Path

ANSWER_S = 4.0


def healthy(url: str, token_file: str = "") -> bool:
    """Whether the page answers with success."""
    request = urllib.request.Request(url)
    try:
        if token_file:
            token = Path(token_file).read_text().strip()
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=ANSWER_S):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(not healthy(sys.argv[1], os.environ.get("DTGOL_WEB_TOKEN_FILE", "")))
