"""Our judge as a service: the routes, the queue before the judge, and the page to try it."""
