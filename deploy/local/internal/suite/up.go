package suite

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"binnacle/deploy/certs"
	"binnacle/deploy/internal/balancer"
	"binnacle/libs/serving/tlsfiles"
)

// Config configures a run.
type Config struct {
	Dir string // absolute: data, certificates, kubeconfigs
	// Self is an executable that runs each program, selected by its first argument.
	Self    string
	Port    int           // of the API server; the other ports follow
	Timeout time.Duration // until all are ready
	// NoControllers leaves the controllers service out.
	NoControllers bool
	// HA runs several instances of everything, with etcd and NATS clusters.
	HA bool
	// Restart triggers a rolling restart, one instance after the other.
	Restart <-chan struct{}
	// QuorumPatience is how long a replicated suite continues without a responding etcd; 0 means a
	// minute.
	QuorumPatience time.Duration
	// RenewInterval is the interval of checks for certificates that expire soon; 0 means a day.
	RenewInterval time.Duration
	// ReportInterval is the interval of messages about a service that is not ready; 0 means 3 s.
	ReportInterval time.Duration
	// SettleTimeout is how long the processes of a group may take to become ready before the next
	// group starts anyway; 0 means 2 s.
	SettleTimeout time.Duration
	// RestartDelay is the delay before the first restart of a replicated suite's process that exits; 0
	// means a second.
	RestartDelay time.Duration
	Out          io.Writer
	Color        bool
}

// Up runs the suite until ctx ends, which is not an error, or until a failure; with HA, until it
// cannot continue. When killNow is canceled, services that are still stopping are killed.
func Up(ctx, killNow context.Context, config Config) error {
	if config.QuorumPatience == 0 {
		config.QuorumPatience = time.Minute
	}
	if config.RenewInterval == 0 {
		config.RenewInterval = 24 * time.Hour
	}
	if config.ReportInterval == 0 {
		config.ReportInterval = 3 * time.Second
	}
	if config.SettleTimeout == 0 {
		config.SettleTimeout = 2 * time.Second
	}
	if config.RestartDelay == 0 {
		config.RestartDelay = time.Second
	}

	// 1. Plan the processes, and make what they need.
	out := &console{out: config.Out, color: config.Color, begin: time.Now()}
	todo := singlePlan(config)
	if config.HA {
		todo = replicatedPlan(config)
	}
	if err := checkPorts(config, todo); err != nil {
		return err
	}
	folder, err := lockFolder(config.Dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := prepare(config, out, todo); err != nil {
		return err
	}

	// 2. Start the processes. The deferred calls stop them in the reverse order.
	r, err := newRun(config, out, todo)
	if err != nil {
		return err
	}
	defer r.prober.close()
	balancing, stopBalancing := context.WithCancel(context.Background())
	defer stopBalancing()
	defer r.stopAll(killNow)
	watching, stopWatching := context.WithCancel(context.Background())
	defer r.backgroundChecks.Wait()
	defer stopWatching()
	defer close(r.ended)
	defer r.restarts.stopTimers()
	if err := r.startGroups(ctx, balancing); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if config.HA {
		r.backgroundChecks.Go(func() { r.watchQuorum(watching, todo.groups[0]) })
	}
	if err := r.waitReady(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}

	// 3. Keep the processes running until ctx ends or a process cannot be restarted.
	r.printUsage()
	renew := time.NewTicker(config.RenewInterval)
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-r.exited:
			if err := r.handleExit(p); err != nil {
				return err
			}
		case i := <-r.restarts.dueInstances:
			r.restartInstance(i)
		case err := <-r.fatal:
			return err
		case <-renew.C:
			r.renewCertificates()
		case <-config.Restart:
			if err := r.restartAll(ctx, killNow); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		}
	}
}

// prepare creates everything that the services need to start. Files that fit are not written, so
// that a suite starts on a full disk.
func prepare(config Config, out *console, todo plan) error {
	files := paths{dir: config.Dir}
	created, err := certs.Ensure(certs.Options{Dir: files.certs().Dir})
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	if len(created) > 0 {
		out.printf("created %d certificates and keys in %s", len(created), files.certs().Dir)
	}
	if config.HA {
		if err := writeNATSConfigs(config); err != nil {
			return err
		}
	}
	if err := writeKubeconfigs(files, todo.services, config.Port); err != nil {
		return fmt.Errorf("kubeconfigs: %w", err)
	}
	return writeConsoleLink(files, localURL(todo.consolePort(config)))
}

// writeFile writes a file that only this user can read, unless it has that content already.
func writeFile(path string, data []byte) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	return tlsfiles.WriteFile(path, data, 0o600)
}

// run is the state of a running suite.
type run struct {
	config           Config
	out              *console
	paths            paths
	prober           *prober
	plan             plan
	groups           [][]*process // like those of the plan, as far as they are started
	outputs          map[string]*serviceOutput
	balancers        map[string]*balancer.Balancer // by service
	exited           chan *process                 // has capacity for all processes
	restarts         *restarts
	fatal            chan error     // why a replicated suite cannot continue
	ended            chan struct{}  // closed when nothing is started or checked any more
	backgroundChecks sync.WaitGroup // background checks
}

// newRun returns the state of a suite before its start.
func newRun(config Config, out *console, todo plan) (*run, error) {
	p := paths{dir: config.Dir}
	asker, err := newProber(p.certs(), config.HA)
	if err != nil {
		return nil, err
	}
	r := &run{
		config:    config,
		out:       out,
		paths:     p,
		prober:    asker,
		plan:      todo,
		outputs:   map[string]*serviceOutput{},
		balancers: map[string]*balancer.Balancer{},
	}
	n := 0
	for _, g := range todo.groups {
		n += len(g)
	}
	r.exited = make(chan *process, n)
	r.restarts = newRestarts(n, r.config.RestartDelay)
	r.fatal = make(chan error, 1)
	r.ended = make(chan struct{})
	return r, nil
}

// startGroups starts the groups of services one after the other, until ctx ends. Each group starts
// when the previous one is ready.
func (r *run) startGroups(ctx, balancing context.Context) error {
	if err := r.startBalancers(balancing); err != nil {
		return err
	}
	colors := []int{36, 32, 33, 35, 34}
	for n, g := range r.plan.groups {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.groups = append(r.groups, nil)
		for _, i := range g {
			r.outputs[i.name] = &serviceOutput{console: r.out, name: i.name, color: colors[n%len(colors)]}
			proc, err := startProcess(i, r.config, r.outputs[i.name], r.exited)
			if err != nil {
				return err
			}
			r.groups[n] = append(r.groups[n], proc)
		}
		if n+1 < len(r.plan.groups) {
			r.prober.giveTimeToStart(ctx, r.groups[n], r.config.SettleTimeout)
		}
		if err := r.checkStarted(r.groups[n]); err != nil {
			return err
		}
	}
	return nil
}

// checkStarted returns an error if one of the processes has ended and nothing restarts it.
func (r *run) checkStarted(group []*process) error {
	for _, p := range group {
		select {
		case <-p.done:
			if !r.config.HA {
				return r.exitError(p)
			}
		default:
		}
	}
	return nil
}

// startAgain starts an instance that has ended.
func (r *run) startAgain(inst instance) (*process, error) {
	proc, err := startProcess(inst, r.config, r.outputs[inst.name], r.exited)
	if err == nil {
		r.out.printf("started %s", proc)
	}
	return proc, err
}

// waitForRestarted waits until a restarted process is ready.
func (r *run) waitForRestarted(ctx context.Context, p *process) error {
	if err := r.prober.waitUntilReady(ctx, r.out, p, r.config.ReportInterval); err != nil {
		return err
	}
	r.out.printf("%s is ready after %.1fs", p.name, time.Since(p.begin).Seconds())
	return nil
}

// waitReady waits for all services concurrently, and fails if one of them exits or the timeout
// expires.
func (r *run) waitReady(ctx context.Context) error {
	return r.whileAllLive(ctx, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, g := range r.groups {
			for _, p := range g {
				group.Go(func() error { return r.prober.waitUntilReady(ctx, r.out, p, r.config.ReportInterval) })
			}
		}
		return group.Wait()
	})
}

// whileAllLive runs wait and handles exits until it returns. It fails if the suite cannot continue
// or the timeout expires.
func (r *run) whileAllLive(ctx context.Context, wait func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- wait(ctx) }()
	for {
		var err error
		select {
		case err := <-done:
			return err
		case p := <-r.exited:
			err = r.handleExit(p)
		case i := <-r.restarts.dueInstances:
			r.restartInstance(i)
		case err = <-r.fatal:
		}
		if err != nil {
			cancel()
			<-done
			return err
		}
	}
}

// printUsage prints what runs and how to use it.
func (r *run) printUsage() {
	var running []string
	for _, g := range r.groups {
		for _, p := range g {
			running = append(running, p.String())
		}
	}
	r.out.printf("running: %s", strings.Join(running, ", "))
	r.out.printf("all services are ready")
	r.out.mu.Lock()
	defer r.out.mu.Unlock()
	fmt.Fprintf(r.out.out, "\n    export KUBECONFIG=%s\n    kubectl get namespaces\n\nThe console is at %s; the link in %s signs you in.\nCtrl-C stops everything and keeps the data.\n",
		r.paths.adminKubeconfig(), localURL(r.plan.consolePort(r.config)), r.paths.consoleLink())
}

// exitError logs the unexpected exit of a process and returns it as an error.
func (r *run) exitError(p *process) error {
	r.logExit(p)
	return fmt.Errorf("%s exited (%s)", p.name, p.exitStatus())
}

// stopAll ends the processes in the reverse order of their start, those of one group concurrently.
func (r *run) stopAll(killNow context.Context) {
	for _, g := range slices.Backward(r.groups) {
		var group sync.WaitGroup
		for _, p := range g {
			group.Go(func() { r.stopProcess(killNow, p) })
		}
		group.Wait()
	}
}

// stopProcess stops a process, unless it has exited.
func (r *run) stopProcess(killNow context.Context, proc *process) {
	select {
	case <-proc.done:
		return
	default:
	}
	start := time.Now()
	if proc.stopOrKill(killNow) {
		r.out.printf("%s did not stop and was killed", proc.name)
	} else {
		r.out.printf("%s stopped in %.1fs", proc.name, time.Since(start).Seconds())
	}
	proc.output.flushPartial()
}
