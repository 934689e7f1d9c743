"""The web app: `handlers` are plain functions of files, `page` lays them out with Gradio, `server` serves the page.

Only `page` imports Gradio, and `server` imports `page` when it is needed.
"""
