"""The web app: `handlers` are plain functions of files, `page` lays them out with Gradio, `server` serves the page.

The modules import Gradio when it is needed, so they can be imported without it.
"""
