// Command bench measures a server's speed and memory: CPU of its processes per
// operation, client-side latency, resident and peak memory. Nothing is asserted.
//
//	bench                      start an API server, load it, and print a table beside
//	                           the floor: a bare HTTPS server that sends the same bytes
//	                           then what permission costs: reviews at 10 to 10,000 role
//	                           bindings, and a GET whose decision is kept
//	                           and what admission costs: creates with the default plugins,
//	                           beside webhooks that do not match, and with one that does;
//	                           the same for policies, and the memory that they take
//	                           and custom resources beside config maps of their size
//	                           and what definitions of custom resources cost
//	                           and how long others wait while one client lists far more
//	                           than the server can do, with and without flow control
//	                           and curves of all that, drawn with -plots=DIR
//	bench compare              the table beside the floor alone
//	bench access               permission alone
//	bench admission            webhooks alone
//	bench audit                what audit adds to a GET
//	bench policies             admission policies alone
//	bench custom               custom resources alone
//	bench restart DIR          restarts alone, with -n pods: CPU, time and memory until
//	                           ready, and memory after lists in all forms; the data are
//	                           made in DIR, or used when they are there
//	bench narrow [FILE]        watchers by node alone (-w, -streams, -rate), and the floor; FILE
//	                           gets a profile of the server meanwhile
//	bench soak                 watchers by node (-w, -streams) told of writes (-rate) for a long
//	                           time (-d), and what the server holds meanwhile; -plots=DIR
//	                           draws it
//	bench definitions          definitions alone: 200 of them, then a restart with 5,000
//	bench fairness             flow control alone, or only busy, fair or limits of it; -plots=DIR draws it
//	bench curves [NAME…]       cost as the work grows alone: objects (up to -largest),
//	                           watchers, replicas, rate; -plots=DIR draws them
//	bench dashboard            draw deploy/monitoring's Grafana dashboard from its JSON and a
//	                           -prometheus, without Grafana, into -out
//	bench -server URL … NAME…  load a server that runs already; one JSON line a scenario
//
// Compare CPU per operation rather than wall time: it is the steadier figure,
// and the load generator shares the machine with the server.
//
// load.go, watch.go and crd.go are the load, usage.go reads what processes used,
// suite.go starts the server, floor.go is the bare server, access.go measures
// permission, admission.go webhooks, policies.go admission policies,
// custom.go custom resources, definitions.go their definitions, fairness.go flow
// control, restart.go restarts, narrow.go watchers by node, soak.go
// a long time of it,
// curves.go cost as the work grows (curveobjects.go,
// curvegrow.go, curvewatch.go), dashboard/ the dashboard.
package main
