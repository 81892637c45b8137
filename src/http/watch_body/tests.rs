//! Frames and writes of a watch, by polling its body.
