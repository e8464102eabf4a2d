// Package suite runs the suite's services as processes of one machine.
//
// Up performs these steps and logs each with its time: build, certificates, kubeconfigs, start, and
// wait until every /readyz returns 200. The start order is such that most services find their
// dependencies ready. Then it keeps running. The table in table.go is the only place that defines
// services and their flags.
//
// With one instance of each, nothing is restarted: a service that exits is a defect that should be
// visible. It is logged with its last lines, and everything stops with an error. Services stop in
// the reverse order of their start, so the API server outlives its clients. Data stays.
//
// With HA there are several instances of each service, clusters of etcd and NATS, and balancers
// (package balancer) at the ports of the services. Restart restarts everything, one instance at a
// time. ha.go has that plan. An exit is logged in the same way, the other processes keep running,
// and the process is restarted after a growing delay (restart.go). The suite ends by itself only if
// etcd has had no quorum for a minute.
package suite
