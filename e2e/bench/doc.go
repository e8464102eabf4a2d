// Command bench measures a server's speed and memory: CPU time of its processes per operation,
// client-side latency, resident and peak memory. It asserts nothing.
//
//	bench                      start an API server, load it, and print a table beside
//	                           the floor: a bare HTTPS server that sends the same bytes;
//	                           then run all measurements below except audit, narrow,
//	                           soak, restart, controllers and dashboard
//	bench compare              only the table beside the floor
//	bench access               authorization: reviews with 10 to 10,000 role bindings,
//	                           and a GET with a cached decision
//	bench admission            creates with the default plugins, with webhooks that do
//	                           not match, and with one that matches
//	bench audit                what audit adds to a GET
//	bench policies             the same as admission for policies, and their memory
//	bench custom               custom resources beside ConfigMaps of the same size
//	bench controllers MANAGER  the service controllers beside a kube-controller-manager with
//	                           the same controllers and -n dependents of one owner
//	bench restart DIR          restarts with -n pods: CPU time, duration and memory until
//	                           ready, and memory after lists in all forms; the data is
//	                           created in DIR, or reused if it exists
//	bench narrow [FILE]        watchers by node (-w, -streams, -rate) and the floor; FILE
//	                           gets a profile of the server
//	bench soak                 memory over a long time (-d) with watchers by node
//	                           (-w, -streams) and writes (-rate); -plots=DIR draws it
//	bench definitions          200 definitions, then a restart with 5,000
//	bench fairness             latency of others while one client lists far more than the
//	                           server can do, with and without flow control, or only
//	                           busy, fair or limits of it; -plots=DIR draws it
//	bench curves [NAME…]       cost as the work grows: objects (up to -largest),
//	                           watchers, replicas, rate; -plots=DIR draws them
//	bench dashboard            draw deploy/monitoring's Grafana dashboard from its JSON and a
//	                           -prometheus, without Grafana, into -out
//	bench -server URL … NAME…  load a running server; one JSON line per scenario
//
// Compare CPU per operation rather than wall time. It varies less, because the load generator
// shares the machine with the server.
//
// load.go, watch.go and crd.go are the load, usage.go reads the resource use of processes, suite.go
// starts the server, and floor.go is the bare server. access.go measures authorization,
// admission.go webhooks, policies.go admission policies, custom.go custom resources, definitions.go
// their definitions, fairness.go flow control, restart.go restarts, controllers.go controllers,
// narrow.go and soak.go watchers by node, and curves.go cost as the work grows (curveobjects.go,
// curvegrow.go, curvewatch.go). dashboard/ draws the dashboard.
package main
