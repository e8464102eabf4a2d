// Package suite runs the suite's services as processes of one machine.
//
// Up goes through these steps and says so, each with its time: build,
// certificates, kubeconfigs, start, in an order in which most find what they ask
// for ready, wait until every /readyz answers 200. Then it stays. The table in table.go is the one place where a service and its
// flags stand.
//
// With one of each nothing is restarted: a service that dies is a defect worth
// seeing. It is reported with its last lines, and everything stops with an error. Services
// stop in the reverse order of their start, so that the API server is there
// until its clients are gone. Data stays.
//
// With HA there are several instances of each service, clusters of etcd and NATS,
// and balancers (package balancer) at the ports where clients look for a service;
// Restart lets everything be restarted one at a time. ha.go has that plan. A death is
// reported in the same way, the others go on, and the process is started again after
// a wait that grows (revive.go); the suite ends by itself only when etcd has had no
// quorum for a minute.
package suite
