from efdm.apps.cli import main

if __name__ == "__main__":  # processes started with "spawn" import this file
    main()
