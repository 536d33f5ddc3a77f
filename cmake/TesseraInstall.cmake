# see cmake/
