// Command bench measures a server's speed and memory: CPU of its processes per
// operation, client-side latency, resident and peak memory. Nothing is asserted.
//
//	bench                      start an API server, load it, and print a table beside
//	                           the floor: a bare HTTPS server that sends the same bytes
//	                           then what permission costs: reviews at 10 to 10,000 role
//	                           bindings, and a GET whose decision is kept
//	                           and what admission costs: creates with the default plugins,
//	                           beside webhooks that do not match, and with one that does
//	bench access               permission alone
//	bench admission            admission alone
//	bench -server URL … NAME…  load a server that runs already; one JSON line a scenario
//
// Compare CPU per operation rather than wall time: it is the steadier figure,
// and the load generator shares the machine with the server.
//
// load.go, watch.go and crd.go are the load, usage.go reads what processes used,
// suite.go starts the server, floor.go is the bare server, access.go measures
// permission, admission.go admission.
package main
