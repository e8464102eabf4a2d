package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"binnacle/e2e/conformance/mirror"
)

// outcome is the outcome of a test: PASS, FAIL, SKIP or UNFINISHED.
type outcome string

const (
	pass outcome = "PASS"
	fail outcome = "FAIL"
	// unfinished tests were running when the process exited.
	unfinished outcome = "UNFINISHED"
)

const (
	etcdQuota = 8 << 30 // bytes
	etcdPoll  = 100 * time.Millisecond
	etcdPolls = 300
)

// compiled is the name of a test that fails for a package that does not compile.
const compiled = "compile"

// runner compiles and runs packages of tests.
type runner struct {
	bin, cache, run string
	timeout         time.Duration

	etcd    string            // URL for the tests of the current package
	modules map[string]string // folders by module
	modfile string
}

// test runs the tests of a package and returns the outcome of each.
func (r *runner) test(ctx context.Context, name string) (map[string]outcome, error) {
	module, folder := "k8s.io/kubernetes", "test/integration/"+name
	if rest, ok := strings.CutPrefix(name, "apiextensions/"); ok {
		module, folder = "k8s.io/apiextensions-apiserver", path.Join("test/integration", rest)
	}
	binary, err := r.compile(ctx, name, module+"/"+folder)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return map[string]outcome{compiled: fail}, nil
	}
	if err != nil {
		return nil, err
	}
	logs := filepath.Join(r.cache, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(logs, flat(name)+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	defer fmt.Println("  log:", log.Name())
	dir := filepath.Join(r.modules[module], filepath.FromSlash(folder))
	stop, err := r.startEtcd(ctx, log)
	if err != nil {
		return nil, err
	}
	defer stop()
	listed, err := r.command(ctx, binary, dir, "-test.list="+cmp.Or(r.run, ".")).Output()
	if err != nil {
		return nil, fmt.Errorf("list tests: %w", err)
	}
	results := map[string]outcome{}
	// A panic ends the process. Another one runs the tests that follow.
	for {
		more, err := r.process(ctx, binary, dir, results, log)
		if err != nil {
			return nil, err
		}
		maps.Copy(results, more)
		if len(more) == 0 || len(results) >= strings.Count(string(listed), "\nTest")+1 {
			return results, nil
		}
	}
}

// startEtcd starts etcd for the tests of a package and waits until it accepts connections.
func (r *runner) startEtcd(ctx context.Context, log *os.File) (stop func(), err error) {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	r.etcd = "http://" + address
	cmd := exec.CommandContext(ctx, filepath.Join(r.bin, "etcd"), "--data-dir="+dir, "--listen-client-urls="+r.etcd,
		"--advertise-client-urls="+r.etcd,
		"--listen-peer-urls=http://127.0.0.1:0", "--log-level=warn", "--quota-backend-bytes="+strconv.Itoa(etcdQuota),
		"--unsafe-no-fsync")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	tick := time.NewTicker(etcdPoll)
	defer tick.Stop()
	for range etcdPolls {
		if c, err := net.Dial("tcp", address); err == nil {
			return stop, c.Close()
		}
		select {
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
	stop()
	return nil, errors.New("etcd does not accept connections")
}

// command returns a command that runs a test binary.
func (r *runner) command(ctx context.Context, binary, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "BINNACLE_APISERVER="+filepath.Join(r.bin, "apiserver"),
		"KUBE_INTEGRATION_ETCD_URL="+r.etcd, "PATH="+r.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd
}

// process runs the tests of a binary except those in done, and returns their outcomes.
func (r *runner) process(ctx context.Context, binary, dir string, done map[string]outcome,
	log *os.File) (map[string]outcome, error) {
	args := []string{"-test.v", "-test.run=" + r.run, "-test.timeout=" + r.timeout.String()}
	if len(done) > 0 {
		args = append(args, "-test.skip=^("+strings.Join(slices.Sorted(maps.Keys(done)), "|")+")$")
	}
	cmd := r.command(ctx, binary, dir, args...)
	// Servers of a process that exits early are in its process group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = end
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = in, log
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return nil, err
	}
	waited := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = end() // processes that a panic leaves behind keep the pipe open
		waited <- err
	}()
	results, err := outcomes(io.TeeReader(out, log), os.Stdout)
	exit := (*exec.ExitError)(nil)
	if ended := <-waited; err == nil && ended != nil && !errors.As(ended, &exit) {
		err = ended
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return results, err
}

var (
	began = regexp.MustCompile(`^=== RUN\s+(\S+)$`)
	ended = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+) \(`)
)

// outcomes reads the output of a test binary and returns the outcomes of its top-level tests.
func outcomes(in io.Reader, progress io.Writer) (map[string]outcome, error) {
	results := map[string]outcome{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\n")
		if m := began.FindStringSubmatch(line); m != nil && !strings.Contains(m[1], "/") {
			results[m[1]] = unfinished
		}
		if m := ended.FindStringSubmatch(line); m != nil {
			results[m[2]] = outcome(m[1])
			fmt.Fprintf(progress, "  %s\n", line)
		}
		if errors.Is(err, io.EOF) {
			return results, nil
		}
		if err != nil {
			return results, err
		}
	}
}

// prepare lays out the modules with the shim and writes a go.mod that uses them.
func (r *runner) prepare(ctx context.Context) error {
	var err error
	r.modules, err = mirror.Write(filepath.Join(r.cache, "mirror"), func(module string) (string, error) {
		return moduleDir(ctx, module)
	})
	if err != nil {
		return fmt.Errorf("lay out modules: %w", err)
	}
	// A test reads the serialized objects of earlier releases, which this module contains.
	api, err := moduleDir(ctx, "k8s.io/api")
	if err != nil {
		return err
	}
	staging := filepath.Join(r.modules["k8s.io/kubernetes"], "staging", "src", "k8s.io")
	if err := errors.Join(os.RemoveAll(filepath.Dir(filepath.Dir(staging))), os.MkdirAll(staging, 0o755),
		os.Symlink(api, filepath.Join(staging, "api"))); err != nil {
		return err
	}
	r.modfile = filepath.Join(r.cache, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.cache, name), text, 0o600); err != nil {
			return err
		}
	}
	args := []string{"mod", "edit"}
	for module, dir := range r.modules {
		args = append(args, "-replace="+module+"="+dir)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, r.modfile)...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// moduleDir downloads a module unless the module cache contains it, and returns its folder.
func moduleDir(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	var found struct{ Dir string }
	err = json.Unmarshal(out, &found)
	return found.Dir, err
}

// compile compiles a package of tests with the shim.
func (r *runner) compile(ctx context.Context, name, pkg string) (string, error) {
	// Tests compare the name of the program, which clients send, with that of their package.
	binary := filepath.Join(r.cache, "tests", flat(name), path.Base(pkg)+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-modfile="+r.modfile, "-o", binary, pkg)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("compile: %w", err)
	}
	return binary, nil
}

func flat(name string) string { return strings.NewReplacer("/", "-", ".", "all").Replace(name) }
