//! Tests of the rules of deletion.
