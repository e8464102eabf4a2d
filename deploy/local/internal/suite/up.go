package suite

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"binnacle/deploy/certs"
)

// Config of a run.
type Config struct {
	Dir     string // absolute: data, certificates, kubeconfigs
	BinDir  string // absolute
	Port    int    // of the API server; the others follow
	NoBuild bool
	Timeout time.Duration // until all are ready
	Out     io.Writer
	Colour  bool
}

// Up runs the suite until ctx ends, which is no error, or until something
// fails. When hurry ends, services that are still stopping are killed.
func Up(ctx, hurry context.Context, c Config) error {
	out := &console{out: c.Out, colour: c.Colour, begin: time.Now()}
	p := paths{dir: c.Dir}
	services := table()
	if err := prepare(ctx, c, out, p, services); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r := &run{c: c, out: out, paths: p, exited: make(chan *process, len(services))}
	defer r.stop(hurry)
	if err := r.start(services); err != nil {
		return err
	}
	if err := r.waitReady(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r.explain()
	select {
	case <-ctx.Done():
		return nil
	case dead := <-r.exited:
		return r.died(dead)
	}
}

// prepare makes everything that the services need to start.
func prepare(ctx context.Context, c Config, out *console, p paths, services []service) error {
	for _, d := range []string{c.Dir, c.BinDir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for _, s := range services {
		if c.NoBuild {
			if err := checkBinary(c.BinDir, s.name); err != nil {
				return err
			}
			continue
		}
		if err := out.step("build "+s.name, func() error { return build(ctx, c.BinDir, s.name) }); err != nil {
			return err
		}
	}
	err := out.step("certificates", func() error {
		made, err := certs.Ensure(certs.Options{Dir: p.certs().Dir})
		if err == nil && len(made) > 0 {
			out.say("made %d certificates and keys in %s", len(made), p.certs().Dir)
		}
		return err
	})
	if err != nil {
		return err
	}
	return out.step("kubeconfigs", func() error {
		return writeKubeconfigs(p, services, c.Port)
	})
}

// run is the suite while its processes run.
type run struct {
	c         Config
	out       *console
	paths     paths
	processes []*process
	exited    chan *process // holds all of them
}

func (r *run) start(services []service) error {
	colours := []int{36, 32, 33, 35, 34}
	for i, s := range services {
		output := &lines{console: r.out, name: s.name, colour: colours[i%len(colours)]}
		proc, err := start(s, r.c, r.paths, output, r.exited)
		if err != nil {
			return err
		}
		r.processes = append(r.processes, proc)
		r.out.say("started %s, process %d", s.name, proc.cmd.Process.Pid)
	}
	return nil
}

// waitReady waits for all services at once, and fails when one of them dies
// or the time is over.
func (r *run) waitReady(ctx context.Context) error {
	client, err := newClient(r.paths.certs())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, r.c.Timeout)
	defer cancel()
	group, groupCtx := errgroup.WithContext(ctx)
	for _, p := range r.processes {
		group.Go(func() error { return waitReady(groupCtx, client, r.out, p) })
	}
	ready := make(chan error, 1)
	go func() { ready <- group.Wait() }()
	select {
	case err := <-ready:
		return err
	case dead := <-r.exited:
		cancel()
		<-ready
		return r.died(dead)
	}
}

// explain says how to use what is running.
func (r *run) explain() {
	r.out.say("all services are ready")
	kubectl := "kubectl"
	if _, err := os.Stat(filepath.Join(r.c.BinDir, "kubectl")); err == nil {
		kubectl = filepath.Join(r.c.BinDir, "kubectl")
	}
	r.out.mu.Lock()
	defer r.out.mu.Unlock()
	fmt.Fprintf(r.out.out, "\n    export KUBECONFIG=%s\n    %s get namespaces\n\nNo kubectl at hand? `make kubectl` builds one as bin/kubectl. Ctrl-C stops everything and keeps the data.\n\n",
		r.paths.adminKubeconfig(), kubectl)
}

// died reports a process that ended though nobody told it to.
func (r *run) died(p *process) error {
	last := p.output.end()
	r.out.say("%s", strings.Repeat("!", 60))
	r.out.say("%s has died: %s. Its last lines:", p.name, p.fate())
	for _, line := range last {
		r.out.say("    %s", line)
	}
	r.out.say("%s", strings.Repeat("!", 60))
	return fmt.Errorf("%s has died: %s", p.name, p.fate())
}

// stop ends the processes in the reverse order of their start.
func (r *run) stop(hurry context.Context) {
	for _, p := range slices.Backward(r.processes) {
		select {
		case <-p.done:
			continue
		default:
		}
		begin := time.Now()
		if p.stop(hurry) {
			r.out.say("%s did not stop and was killed", p.name)
		} else {
			r.out.say("%s stopped in %.1fs", p.name, time.Since(begin).Seconds())
		}
		p.output.end()
	}
}
