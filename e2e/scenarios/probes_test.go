package scenarios

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"binnacle/e2e/harness"
)

const probeTimeout = 5 * time.Second

// startPods starts all pods and waits until they are ready.
func (s *podSet) startPods() {
	s.t.Helper()
	all := slices.Concat(s.stores, s.services)
	for _, p := range slices.Concat(all, s.jobs) {
		s.mountVolumes(p)
	}
	for _, p := range all {
		p.Start(s.containerArgs(p)...)
	}
	s.checkNames()
	harness.Eventually(s.t, time.Minute, "all pods are ready", func() (err error) {
		for _, p := range all {
			err = errors.Join(err, s.publishIfReady(p))
		}
		return err
	})
}

// publishIfReady makes Services accept connections if the pod passes its probes.
func (s *podSet) publishIfReady(current *pod) error {
	if current.ready {
		return nil
	}
	if !current.Running() {
		s.t.Fatalf("%s has exited before it was ready", current.name)
	}
	for _, probe := range []*corev1.Probe{current.container.StartupProbe, current.container.LivenessProbe, current.container.ReadinessProbe} {
		if probe == nil {
			continue
		}
		if err := s.runProbe(current, probe.ProbeHandler); err != nil {
			return fmt.Errorf("%s: %w", current.name, err)
		}
	}
	for local, proxy := range current.balanced {
		proxy.SetTargets(local)
	}
	current.ready = true
	return nil
}

// runProbe probes a pod as a kubelet does, which does not verify certificates.
func (s *podSet) runProbe(current *pod, probe corev1.ProbeHandler) error {
	switch {
	case probe.Exec != nil:
		if probe.Exec.Command[0] != "/"+string(current.program) {
			return fmt.Errorf("the image has no %s", probe.Exec.Command[0])
		}
		return s.runCommand(current, probe.Exec.Command[1:])
	case probe.TCPSocket != nil:
		local, err := current.localAddress(probe.TCPSocket.Port)
		if err != nil {
			return err
		}
		c, err := net.DialTimeout("tcp", local, probeTimeout)
		if err != nil {
			return err
		}
		return c.Close()
	case probe.HTTPGet != nil:
		local, err := current.localAddress(probe.HTTPGet.Port)
		if err != nil {
			return err
		}
		client := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
		}}
		scheme := strings.ToLower(string(cmp.Or(probe.HTTPGet.Scheme, corev1.URISchemeHTTP)))
		resp, err := client.Get(scheme + "://" + local + probe.HTTPGet.Path)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", probe.HTTPGet.Path, resp.Status)
		}
		return errors.Join(err, resp.Body.Close())
	}
	return errors.New("unknown kind of probe")
}

// runCommand runs the program of a pod with other arguments.
func (s *podSet) runCommand(p *pod, args []string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), probeTimeout)
	defer cancel()
	args = slices.Clone(args)
	for i, a := range args {
		args[i] = s.replaceAddresses(p, a)
	}
	if out, err := exec.CommandContext(ctx, harness.Binary(s.t, p.program), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// stopPods stops the services together with SIGTERM. Their exit code must be 0. etcd, which is
// killed by the signal, and NATS run until the end of the test.
func (s *podSet) stopPods() {
	s.t.Helper()
	var wg sync.WaitGroup
	for _, p := range s.services {
		wg.Go(func() {
			if err := p.Stop(); err != nil {
				s.t.Errorf("%s: SIGTERM: %v", p.name, err)
			}
		})
	}
	wg.Wait()
}
