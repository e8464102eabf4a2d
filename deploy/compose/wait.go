package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const (
	pollInterval   = 500 * time.Millisecond
	reportInterval = 3 * time.Second
	logTail        = "20" // lines
)

// servicePorts lists the services with two instances each, and their ports in compose.yaml.
var servicePorts = []struct {
	service string
	port    int
}{
	{"apiserver", 6443},
	{"authn-webhook", 6444},
	{"authz-webhook", 6445},
	{"tokencleaner", 6446},
	{"bootstrapsigner", 6447},
	{"controllers", 6449},
}

// consolePort is the port of the console, which has one instance.
const consolePort = 6448

// instanceAddresses returns the addresses of the instances that must be ready, as host:port in the
// network of the balancer. It does not include etcd, because API servers are not ready without it,
// and NATS, which the balancer does not reach.
func (c *config) instanceAddresses() (out []string) {
	for _, s := range servicePorts {
		for i := 1; i <= 2; i++ {
			out = append(out, fmt.Sprintf("%s-%d:%d", s.service, i, s.port))
		}
	}
	if c.Console {
		out = append(out, fmt.Sprintf("%s:%d", consoleProfile, consolePort))
	}
	return out
}

// waitUntilReady waits until all instances are ready. Every reportInterval, it logs what it waits
// for. After c.Timeout, it logs the output of containers that are not running, and returns an
// error.
func (c *config) waitUntilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	reported := time.Now()
	for {
		waiting := c.notReadyReasons(ctx)
		if waiting == "" {
			return nil
		}
		if time.Since(reported) > reportInterval {
			reported = time.Now()
			for line := range strings.Lines(waiting) {
				c.printf("waiting for %s", strings.TrimSpace(line))
			}
		}
		select {
		case <-ctx.Done():
			c.showLogs(context.WithoutCancel(ctx))
			return fmt.Errorf("not everything is ready: %w: %s", ctx.Err(), waiting)
		case <-tick.C:
		}
	}
}

// notReadyReasons returns the reasons why the cluster is not ready, one per line: the containers
// that are not running, or else the output of the balancer's health check of all instances. It
// returns "" if everything is ready.
func (c *config) notReadyReasons(ctx context.Context) string {
	if dead := c.exitedContainers(ctx); dead != "" {
		return dead
	}
	balancer, err := c.containerID(ctx, "balancer")
	if err != nil {
		return err.Error()
	}
	args := append([]string{"exec", balancer, "/balancer", "check", "--ca-file=/certs/serving-ca.crt"}, c.instanceAddresses()...)
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err == nil {
		return ""
	}
	if len(out) == 0 {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

// containerID returns the id of a service's container.
func (c *config) containerID(ctx context.Context, service string) (string, error) {
	out, err := runDocker(ctx, "ps", "--quiet", "--filter=label=com.docker.compose.project="+c.Project,
		"--filter=label=com.docker.compose.service="+service)
	if err != nil {
		return "", err
	}
	ids := strings.Fields(out)
	if len(ids) != 1 {
		return "", fmt.Errorf("found %d containers of %s, want 1", len(ids), service)
	}
	return ids[0], nil
}

// exitedContainers returns the containers that are not running, one per line.
func (c *config) exitedContainers(ctx context.Context) string {
	out, err := runDocker(ctx, "ps", "--all", "--format={{.Names}} {{.State}}",
		"--filter=label=com.docker.compose.project="+c.Project)
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(out), "\n"), func(line string) bool {
		return strings.HasSuffix(line, " running")
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// showLogs logs the last lines of containers that are not running.
func (c *config) showLogs(ctx context.Context) {
	for line := range strings.Lines(c.exitedContainers(ctx)) {
		name, state, _ := strings.Cut(strings.TrimSpace(line), " ")
		log, err := runDocker(ctx, "logs", "--tail="+logTail, name)
		c.printf("%s is %s (%v); its last lines:\n%s", name, state, err, log)
	}
}
