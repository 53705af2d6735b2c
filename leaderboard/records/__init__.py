"""What a board holds: measured entries, admitted, added and loaded; published rows."""
