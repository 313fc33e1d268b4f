"""Fifteen groups of five kinds of clients, a script that does harm and writes down what it did, and a comparison."""
