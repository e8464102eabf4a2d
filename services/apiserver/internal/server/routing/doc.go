// Package routing finds the handler of a request. Mux selects it by path. Delegates finds another
// server that serves the resource. The package also contains the small debug endpoints.
package routing
