"""What people look at and decide beside a running pipeline; the commands are in `cli`."""
