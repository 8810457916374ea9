"""The batch source "ferryman": the state of an epoch, and the changes of several, as Spark reads tables."""
