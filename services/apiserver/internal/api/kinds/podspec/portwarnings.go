package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// definedPort is the port of a container and its path.
type definedPort struct {
	path *field.Path
	port *corev1.ContainerPort
}

// portKey holds the values that several definitions may share.
type portKey struct {
	container int32
	protocol  corev1.Protocol
	host      int32
	ip        string
}

// definedPorts finds conflicting definitions without comparing every pair. Its lists hold indexes
// of ports in order.
type definedPorts struct {
	all []definedPort
	// indexes by container port; by container and host port; by container port, host port and host
	// address
	same, sameHost, sameIP map[portKey][]int
}

func (d *definedPorts) add(p definedPort) {
	k, n := keyOf(p.port), len(d.all)
	d.all = append(d.all, p)
	d.sameIP[k] = append(d.sameIP[k], n)
	k.ip = ""
	d.sameHost[k] = append(d.sameHost[k], n)
	k.host = 0
	d.same[k] = append(d.same[k], n)
}

func keyOf(p *corev1.ContainerPort) portKey {
	return portKey{p.ContainerPort, p.Protocol, p.HostPort, p.HostIP}
}

// clashes returns the earlier definitions that a port conflicts with.
func (d *definedPorts) clashes(p *corev1.ContainerPort) []int {
	k := keyOf(p)
	if p.HostPort == 0 {
		k.ip = ""
		return d.same[k]
	}
	anyHost := k
	anyHost.host, anyHost.ip = 0, ""
	found := slices.Clone(d.sameHost[anyHost])
	anyIP := k
	anyIP.ip = ""
	if p.HostIP == "" {
		found = append(found, d.sameHost[anyIP]...)
	} else {
		found = append(append(found, d.sameIP[k]...), d.sameIP[anyIP]...)
	}
	slices.Sort(found)
	return found
}

// ports adds warnings for ports that are defined twice.
func (w *warner) ports() {
	d := definedPorts{same: map[portKey][]int{}, sameHost: map[portKey][]int{}, sameIP: map[portKey][]int{}}
	eachContainer(w.spec, func(list string, i int, c *corev1.Container) {
		for j := range c.Ports {
			if w.full() {
				return
			}
			p, path := &c.Ports[j], w.at(list).Index(i).Child("ports").Index(j)
			if p.HostIP != "" && p.HostPort == 0 {
				w.say("%s: hostIP set without hostPort: %+v", path, struct {
					Name                    string
					HostPort, ContainerPort int32
					Protocol                corev1.Protocol
					HostIP                  string
				}{p.Name, p.HostPort, p.ContainerPort, p.Protocol, p.HostIP})
			}
			for _, n := range d.clashes(p) {
				other := d.all[n]
				switch o := other.port; {
				case p.HostIP == o.HostIP && p.HostPort == o.HostPort:
					w.say("%s: duplicate port definition with %s", path, other.path)
				case p.HostPort == 0 || o.HostPort == 0:
					w.say("%s: overlapping port definition with %s", path, other.path)
				default:
					w.say("%s: dangerously ambiguous port definition with %s", path, other.path)
				}
			}
			d.add(definedPort{path, p})
		}
	})
}
