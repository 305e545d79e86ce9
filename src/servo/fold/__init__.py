"""The fold: from placed facts to tables. Pure: no input or output, no clock."""
