// Command compose runs compose.yaml, for `make compose` and `make compose-down`.
//
// `compose up` goes through these steps: images of the suite, made here; images of
// etcd and NATS, which are pulled, or made of their Go modules where no registry can
// be reached; certificates and a kubeconfig in the folder of the state; the
// containers; and waiting until every one is ready, which it tells of. What is there
// and fits is kept, so it may be run again, for instance after a change of the code.
// `compose down` removes the containers and networks and keeps the state.
//
// It works with `docker compose` and with the older docker-compose.
package main
