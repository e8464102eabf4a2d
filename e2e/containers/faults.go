package containers

import (
	"fmt"
	"strings"
)

// fault is a failure and its repair.
type fault struct {
	name   string
	inject func(*composition)
	repair func(*composition)
}

// runDocker runs a docker command that may change addresses.
func (c *composition) runDocker(args ...string) {
	c.t.Helper()
	mustDocker(c.t, args...)
	c.addresses.clear()
}

// killService kills the container of a service. The repair starts it.
func killService(service string) fault {
	return fault{
		service + " killed",
		func(c *composition) { c.runDocker("kill", c.mustContainer(service)) },
		func(c *composition) { c.runDocker("start", c.mustContainer(service)) },
	}
}

// pauseService pauses the container of a service.
func pauseService(service string) fault {
	return fault{
		service + " paused",
		func(c *composition) { c.runDocker("pause", c.mustContainer(service)) },
		func(c *composition) { c.runDocker("unpause", c.mustContainer(service)) },
	}
}

// disconnectServices disconnects services from a network.
func disconnectServices(network string, services ...string) fault {
	return fault{
		fmt.Sprintf("%s cut from the network %s", strings.Join(services, " and "), network),
		func(c *composition) {
			for _, s := range services {
				c.runDocker("network", "disconnect", c.networkName(network), c.mustContainer(s))
			}
		},
		func(c *composition) {
			for _, s := range services {
				args := []string{"network", "connect"}
				for _, a := range networkAliases(s) {
					args = append(args, "--alias="+a)
				}
				c.runDocker(append(args, c.networkName(network), c.mustContainer(s))...)
			}
		},
	}
}

// networkAliases returns the names of a service on its networks.
func networkAliases(service string) []string {
	if service == "balancer" {
		return []string{service, "apiserver", "authn-webhook", "authz-webhook"}
	}
	return []string{service}
}

// networksOfService returns the networks of a service.
func networksOfService(service string) []string {
	switch strings.TrimRight(service, "-0123456789") {
	case "etcd", "nats":
		return []string{service[:4]}
	case "apiserver":
		return []string{etcdNetwork, "nats", suiteNetwork}
	}
	return []string{suiteNetwork}
}

// instances returns the names of all containers.
func instances() (out []string) {
	for i := range 3 {
		out = append(out, fmt.Sprintf("etcd-%d", i), fmt.Sprintf("nats-%d", i))
	}
	for _, s := range suiteServices() {
		if s != consoleService {
			out = append(out, s+"-1", s+"-2")
		}
	}
	return append(out, "balancer")
}

// faultsOfBriefForm returns one fault of each kind.
func faultsOfBriefForm() []fault {
	return []fault{
		killService("apiserver-1"),
		pauseService("etcd-0"),
		disconnectServices("nats", "apiserver-1", "apiserver-2"),
	}
}

// faultsOfMoreForm returns faults of each kind of container, and the relevant partitions.
func faultsOfMoreForm() []fault {
	return []fault{
		killService("apiserver-1"),
		disconnectServices("nats", "apiserver-1", "apiserver-2"),
		disconnectServices("etcd", "apiserver-2"),
		pauseService("etcd-0"),
		disconnectServices(suiteNetwork, "authn-webhook-1", "authz-webhook-1"),
		disconnectServices(suiteNetwork, "balancer"),
	}
}

// faultsOfLongForm returns every fault of every container.
func faultsOfLongForm() (out []fault) {
	for _, s := range instances() {
		out = append(out, killService(s), pauseService(s))
		for _, n := range networksOfService(s) {
			out = append(out, disconnectServices(n, s))
		}
	}
	return append(out,
		disconnectServices("nats", "apiserver-1", "apiserver-2"),
		disconnectServices("nats", "nats-0", "nats-1", "nats-2"),
		disconnectServices("etcd", "etcd-1", "etcd-2"), // no quorum
		disconnectServices(suiteNetwork, "authn-webhook-1", "authn-webhook-2"),
		disconnectServices(suiteNetwork, "authz-webhook-1", "authz-webhook-2"),
	)
}
