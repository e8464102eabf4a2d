package containers

import (
	"fmt"
	"strings"
)

// fault is a failure and its repair.
type fault struct {
	name   string
	damage func(*composition)
	repair func(*composition)
}

func (c *composition) docker(args ...string) {
	c.t.Helper()
	mustDocker(c.t, args...)
	c.addresses.forget()
}

func kill(service string) fault {
	return fault{
		service + " killed",
		func(c *composition) { c.docker("kill", c.mustContainer(service)) },
		func(c *composition) { c.docker("start", c.mustContainer(service)) },
	}
}

func pause(service string) fault {
	return fault{
		service + " paused",
		func(c *composition) { c.docker("pause", c.mustContainer(service)) },
		func(c *composition) { c.docker("unpause", c.mustContainer(service)) },
	}
}

// disconnect disconnects services from a network.
func disconnect(network string, services ...string) fault {
	return fault{
		fmt.Sprintf("%s cut from the network %s", strings.Join(services, " and "), network),
		func(c *composition) {
			for _, s := range services {
				c.docker("network", "disconnect", c.network(network), c.mustContainer(s))
			}
		},
		func(c *composition) {
			for _, s := range services {
				args := []string{"network", "connect"}
				for _, a := range aliases(s) {
					args = append(args, "--alias="+a)
				}
				c.docker(append(args, c.network(network), c.mustContainer(s))...)
			}
		},
	}
}

// aliases returns the names of a service on its networks.
func aliases(service string) []string {
	if service == "balancer" {
		return []string{service, "apiserver", "authn-webhook", "authz-webhook"}
	}
	return []string{service}
}

// networksOf returns the networks of a service.
func networksOf(service string) []string {
	switch strings.TrimRight(service, "-0123456789") {
	case "etcd", "nats":
		return []string{service[:4]}
	case "apiserver":
		return []string{"etcd", "nats", "suite"}
	}
	return []string{"suite"}
}

// instances returns the names of all containers.
func instances() (out []string) {
	for i := range 3 {
		out = append(out, fmt.Sprintf("etcd-%d", i), fmt.Sprintf("nats-%d", i))
	}
	for _, s := range suite() {
		if s != consoleService {
			out = append(out, s+"-1", s+"-2")
		}
	}
	return append(out, "balancer")
}

// briefFaults returns one fault of each kind.
func briefFaults() []fault {
	return []fault{
		kill("apiserver-1"),
		pause("etcd-0"),
		disconnect("nats", "apiserver-1", "apiserver-2"),
	}
}

// moreFaults returns faults of each kind of container, and the relevant partitions.
func moreFaults() []fault {
	return []fault{
		kill("apiserver-1"),
		disconnect("nats", "apiserver-1", "apiserver-2"),
		disconnect("etcd", "apiserver-2"),
		pause("etcd-0"),
		disconnect("suite", "authn-webhook-1", "authz-webhook-1"),
		disconnect("suite", "balancer"),
	}
}

// longFaults returns every fault of every container.
func longFaults() (out []fault) {
	for _, s := range instances() {
		out = append(out, kill(s), pause(s))
		for _, n := range networksOf(s) {
			out = append(out, disconnect(n, s))
		}
	}
	return append(out,
		disconnect("nats", "apiserver-1", "apiserver-2"),
		disconnect("nats", "nats-0", "nats-1", "nats-2"),
		disconnect("etcd", "etcd-1", "etcd-2"), // no quorum
		disconnect("suite", "authn-webhook-1", "authn-webhook-2"),
		disconnect("suite", "authz-webhook-1", "authz-webhook-2"),
	)
}
