"""What results look like: tables as text, HTML, LaTeX and frames, and pictures. It knows nothing of what they hold."""
