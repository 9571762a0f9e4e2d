"""JSON Schemas as conditions, and the work of checking a value against one."""
