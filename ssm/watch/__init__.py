"""What goes on in a results folder, from its files alone. Nothing is written, nothing is locked."""
