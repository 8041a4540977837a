"""What runs beside pulsetrain, one folder for each way to deploy it; files.py writes into a folder of the user's."""
