-- Tables for the two sinks beside this file. at_* is the identity of a prediction (`at` on the wire): copies that a
-- restarted worker sends have the same one, so an upsert by it leaves one row. open_set is `set` on the wire, a word of SQL: the classes left open.
CREATE TABLE predictions (
  stream         VARCHAR(128)     NOT NULL,
  id             VARCHAR(1024),
  at_journal     VARCHAR(64)      NOT NULL,
  at_partition   INTEGER          NOT NULL,
  at_offset      BIGINT           NOT NULL,
  step           BIGINT,
  model          VARCHAR(64),
  ts             BIGINT,
  p              DOUBLE PRECISION,
  label          INTEGER,
  naive          DOUBLE PRECISION,
  labels_learnt  BIGINT,
  unverified     BIGINT,
  observed_share DOUBLE PRECISION,
  uncertainty    DOUBLE PRECISION,
  repeat         BOOLEAN,
  threshold      DOUBLE PRECISION,
  open_set       INTEGER[],
  expire_ms      BIGINT,
  PRIMARY KEY (at_journal, at_partition, at_offset)
);

-- One row for each label of a prediction: a corrected label scores again.
CREATE TABLE scores (
  stream         VARCHAR(128)     NOT NULL,
  id             VARCHAR(1024),
  at_journal     VARCHAR(64)      NOT NULL,
  at_partition   INTEGER          NOT NULL,
  at_offset      BIGINT           NOT NULL,
  step           BIGINT,
  model          VARCHAR(64),
  p              DOUBLE PRECISION,
  naive          DOUBLE PRECISION,
  y              INTEGER,
  correct        BOOLEAN,
  naive_correct  BOOLEAN,
  loss           DOUBLE PRECISION,
  naive_loss     DOUBLE PRECISION,
  delay_ms       BIGINT,
  rescored       BOOLEAN,
  label_offset   BIGINT           NOT NULL,
  is_default     BOOLEAN,
  threshold      DOUBLE PRECISION,
  open_set       INTEGER[],
  covered        BOOLEAN,
  PRIMARY KEY (at_journal, at_partition, at_offset, label_offset)
);

-- The score that counts: of one prediction that with the largest label_offset.
CREATE VIEW latest_scores AS
SELECT * FROM scores AS s
WHERE label_offset = (
  SELECT MAX(o.label_offset) FROM scores AS o
  WHERE o.at_journal = s.at_journal AND o.at_partition = s.at_partition AND o.at_offset = s.at_offset
);
