"""Display of results: tables as text, HTML, LaTeX and data frames, and plots, independent of what results contain."""
