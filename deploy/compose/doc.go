// Command compose runs compose.yaml, for `make compose` and `make compose-down`.
//
// `compose up` performs these steps: it builds the images of the suite; pulls the images of etcd
// and NATS, or builds them from their Go modules where no registry is reachable; creates
// certificates and a kubeconfig in the state folder; starts the containers; and waits until all are
// ready, with progress messages. Existing results that fit are kept, so it may run again, for
// instance after a change of the code. `compose down` removes the containers and networks and keeps
// the state.
//
// It works with `docker compose` and with the older docker-compose.
package main
