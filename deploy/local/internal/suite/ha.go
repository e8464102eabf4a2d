package suite

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"binnacle/deploy/certs"
	"binnacle/deploy/internal/balancer"
)

// Numbers of replicated instances. Clients reach a service with several instances at the service's
// own port, where a balancer listens.
const (
	apiservers = 3
	replicas   = 2
	members    = 3 // of the etcd and the NATS cluster each
)

// Ports after that of the API server: the balancers, the instances, etcd's clients, peers and
// health, and NATS' clients and routes.
const (
	instanceOffset = 7
	etcdOffset     = instanceOffset + apiservers + 5*replicas
	natsOffset     = etcdOffset + 3*members
	// Ports is the number of ports of a replicated suite.
	Ports = natsOffset + 2*members
)

// etcdProgram and natsProgram are the commands of the binary that run a member.
const (
	etcdProgram = "etcd"
	natsProgram = "nats-server"
)

// clusterID is the name of the suite on NATS, which the NATS permissions use.
const clusterID = "local"

// shutdownDelay allows a balancer to notice.
const shutdownDelay = "--shutdown-delay-duration=1s"

// replicatedPlan returns a plan with several instances of everything.
func replicatedPlan(config Config) plan {
	result := plan{
		services: serviceTable(config),
		groups:   [][]instance{etcdMembers(config), natsMembers(config)},
	}
	port := config.Port + instanceOffset
	for _, svc := range result.services {
		if svc.name == consoleService { // one is enough, without a balancer
			result.groups = append(result.groups, []instance{serviceInstance(svc, svc.name, config, config.Port+svc.offset, result.consoleFlags(svc)...)})
			continue
		}
		n, extraArgs := replicas, []string(nil)
		switch {
		case svc.name == apiserver:
			n, extraArgs = apiservers, append(clusterFlags(config), shutdownDelay, "--shutdown-send-retry-after")
		case isWebhook(svc.name):
			extraArgs = []string{shutdownDelay}
		}
		var group []instance
		for i := range n {
			group = append(group, serviceInstance(svc, fmt.Sprintf("%s-%d", svc.name, i), config, port, extraArgs...))
			port++
		}
		result.groups = append(result.groups, group)
		if svc.name == apiserver || isWebhook(svc.name) {
			result.balancers = append(result.balancers, balancedService{name: svc.name, port: config.Port + svc.offset, instances: group})
		}
	}
	return result
}

func memberName(name string, i int) string { return fmt.Sprintf("%s-%d", name, i) }

func loopbackAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// etcdPort returns the ports of a member of etcd. Health and metrics have a port of their own, as
// etcd recommends.
func etcdPort(config Config, index int) (client, peer, health int) {
	client = config.Port + etcdOffset + 3*index
	return client, client + 1, client + 2
}

func natsPort(config Config, index int) (client, route int) {
	client = config.Port + natsOffset + 2*index
	return client, client + 1
}

// clusterFlags returns the flags with which an API server connects to etcd and NATS.
func clusterFlags(config Config) []string {
	layout := paths{dir: config.Dir}.certs()
	var etcdURLs, natsURLs []string
	for i := range members {
		client, _, _ := etcdPort(config, i)
		etcdURLs = append(etcdURLs, localURL(client))
		client, _ = natsPort(config, i)
		natsURLs = append(natsURLs, "tls://"+loopbackAddr(client))
	}
	return []string{
		"--etcd-servers=" + strings.Join(etcdURLs, ","), "--etcd-cafile=" + layout.TrustBundle(apiserver, certs.EtcdCA),
		"--etcd-certfile=" + layout.EtcdClient().Cert, "--etcd-keyfile=" + layout.EtcdClient().Key,
		"--nats-servers=" + strings.Join(natsURLs, ","), "--nats-ca-file=" + layout.TrustBundle(apiserver, certs.NATSCA),
		"--nats-cert-file=" + layout.NATSClient().Cert, "--nats-key-file=" + layout.NATSClient().Key,
		"--cluster-id=" + clusterID,
	}
}

// etcdMembers returns the members of the etcd cluster.
func etcdMembers(config Config) []instance {
	l := paths{dir: config.Dir}.certs()
	ca, pair := l.TrustBundle("etcd", certs.EtcdCA), l.Etcd()
	var all []string
	for i := range members {
		_, peer, _ := etcdPort(config, i)
		all = append(all, memberName("etcd", i)+"="+localURL(peer))
	}
	var out []instance
	for i := range members {
		client, peer, health := etcdPort(config, i)
		name := memberName("etcd", i)
		out = append(out, instance{
			name: name, program: etcdProgram, port: client, health: localURL(health) + "/health", identity: identityEtcdClient,
			args: []string{
				"--name=" + name, "--data-dir=" + filepath.Join(config.Dir, "ha", name), "--log-level=warn",
				"--listen-client-urls=" + localURL(client), "--listen-client-http-urls=" + localURL(health),
				"--advertise-client-urls=" + localURL(client),
				"--listen-peer-urls=" + localURL(peer), "--initial-advertise-peer-urls=" + localURL(peer),
				"--initial-cluster=" + strings.Join(all, ","), "--initial-cluster-token=local",
				"--client-cert-auth", "--trusted-ca-file=" + ca, "--cert-file=" + pair.Cert, "--key-file=" + pair.Key,
				"--peer-client-cert-auth", "--peer-trusted-ca-file=" + ca, "--peer-cert-file=" + pair.Cert,
				"--peer-key-file=" + pair.Key,
				"--peer-cert-allowed-cn=etcd", "--auth-token=",
			},
		})
	}
	return out
}

func natsConfig(config Config, index int) string {
	return filepath.Join(config.Dir, "ha", memberName("nats", index)+".conf")
}

// natsMembers returns the servers of the NATS cluster.
func natsMembers(config Config) []instance {
	var out []instance
	for i := range members {
		client, _ := natsPort(config, i)
		out = append(out, instance{
			name: memberName("nats", i), program: natsProgram, port: client, health: loopbackAddr(client), identity: identityNATS,
			args: []string{
				"--config=" + natsConfig(config, i), "--name=" + memberName("nats", i), "--addr=127.0.0.1",
				fmt.Sprintf("--port=%d", client), "--log-level=warn",
			},
		})
	}
	return out
}

// natsTemplate is the configuration that flags cannot express: authentication by certificates, and
// the subjects that API servers may publish and subscribe to. Cluster members authenticate by the
// name of a member.
const natsTemplate = `tls { cert_file: "{{.Pair.Cert}}", key_file: "{{.Pair.Key}}", ca_file: "{{.CA}}", verify_and_map: true }
max_payload: 8388608
connect_error_reports: 30
authorization {
  users: [
    { user: "CN=apiserver", permissions: {
      publish: ["binnacle.{{.ClusterID}}.changes", "binnacle.{{.ClusterID}}.ask", "binnacle.{{.ClusterID}}.traces"]
      subscribe: ["binnacle.{{.ClusterID}}.changes", "binnacle.{{.ClusterID}}.ask", "binnacle.{{.ClusterID}}.traces"]
    } }
  ]
}
cluster {
  name: local
  listen: "{{.Listen}}"
  no_advertise: true
  tls { cert_file: "{{.Pair.Cert}}", key_file: "{{.Pair.Key}}", ca_file: "{{.CA}}", verify_and_map: true }
  authorization { user: "nats" }
  routes: [{{range .Routes}}"{{.}}", {{end}}]
}
`

// writeNATSConfigs writes the configuration file of each NATS server.
func writeNATSConfigs(config Config) error {
	layout := paths{dir: config.Dir}.certs()
	t, err := template.New("nats").Parse(natsTemplate)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(config.Dir, "ha"), 0o700); err != nil {
		return err
	}
	var routes []string
	for i := range members {
		_, route := natsPort(config, i)
		routes = append(routes, "tls://"+loopbackAddr(route))
	}
	for i := range members {
		_, route := natsPort(config, i)
		var text strings.Builder
		err := t.Execute(&text, struct {
			Pair                  certs.Pair
			CA, Listen, ClusterID string
			Routes                []string
		}{layout.NATS(), layout.TrustBundle("nats", certs.NATSCA), loopbackAddr(route), clusterID, routes})
		if err != nil {
			return err
		}
		if err := writeFile(natsConfig(config, i), []byte(text.String())); err != nil {
			return err
		}
	}
	return nil
}

// startBalancers starts the balancers, which end with ctx.
func (r *run) startBalancers(ctx context.Context) error {
	for _, svc := range r.plan.balancers {
		instances := map[string]instance{}
		var backends []string
		for _, i := range svc.instances {
			backends = append(backends, loopbackAddr(i.port))
			instances[loopbackAddr(i.port)] = i
		}
		running, err := balancer.New(balancer.Config{
			Listen:   loopbackAddr(svc.port),
			Backends: backends,
			Ready: func(ctx context.Context, backend string) balancer.State {
				if ready, _ := r.prober.checkReady(ctx, instances[backend]); ready {
					return balancer.Ready
				}
				return balancer.Busy
			},
		})
		if err != nil {
			return fmt.Errorf("balancer of %s: %w", svc.name, err)
		}
		r.balancers[svc.name] = running
		go func() { // ends with ctx
			if err := running.Run(ctx); err != nil && ctx.Err() == nil {
				r.out.printf("the balancer of %s stopped: %v", svc.name, err)
			}
		}()
	}
	return nil
}

// restartAll restarts every process, one at a time, each when the one before is ready and its
// balancer has noticed.
func (r *run) restartAll(ctx, killNow context.Context) error {
	r.out.printf("rolling restart ...")
	for n, g := range r.groups {
		for k, old := range g {
			r.stopProcess(killNow, old)
			p, err := r.startAgain(old.instance)
			if err != nil {
				return err
			}
			r.groups[n][k] = p
			if err := r.whileAllLive(ctx, func(ctx context.Context) error { return r.waitUntilServing(ctx, p) }); err != nil {
				return err
			}
		}
	}
	r.out.printf("rolling restart: done")
	return nil
}

// waitUntilServing waits until a restarted service is ready and its balancer uses it again.
func (r *run) waitUntilServing(ctx context.Context, p *process) error {
	if err := r.waitForRestarted(ctx, p); err != nil {
		return err
	}
	b, ok := r.balancers[p.program]
	if !ok {
		return nil
	}
	if err := b.Await(ctx, loopbackAddr(p.port), true); err != nil {
		return fmt.Errorf("the balancer does not see %s: %w", p.name, err)
	}
	return nil
}
