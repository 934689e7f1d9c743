from efdm.apps.cli import main

if __name__ == "__main__":  # multiprocessing with "spawn" imports this file
    main()
