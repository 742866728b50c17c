//! What was reported from the field.
