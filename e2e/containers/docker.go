package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	projectPrefix  = "binnacle-e2e-"
	imagesPrefix   = "localhost/binnacle-e2e"
	consoleService = "console"
	projectLabel   = "com.docker.compose.project"
	serviceLabel   = "com.docker.compose.service"
	dockerTimeout  = 4 * time.Minute
	// probeTimeout bounds the wait for a response of a working engine.
	probeTimeout = 20 * time.Second
	// The engine releases the resources of a container shortly after its removal.
	removeTries = 20
	removePause = 500 * time.Millisecond
)

// requireDocker skips a test on a machine without a Docker Engine. It removes what killed test
// processes left.
func requireDocker(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes minutes")
	}
	if runtime.GOOS != "linux" {
		t.Skip("container networks are reachable on Linux only")
	}
	if err := commandError("docker", "info", "--format={{.ServerVersion}}"); err != nil {
		t.Skipf("no Docker Engine: %v", err)
	}
	if err := commandError("docker", "compose", "version"); err != nil {
		if older := commandError("docker-compose", "version"); older != nil {
			t.Skipf("neither docker compose nor docker-compose is available: %v; %v", err, older)
		}
	}
	removeStaleProjects(t)
}

// commandError runs a command and returns its error and output, or nil.
func commandError(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, errors.Join(err, ctx.Err()), strings.TrimSpace(string(out)))
	}
	return nil
}

// docker runs a docker command and returns its output.
func docker(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dockerTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// mustDocker runs a docker command that must succeed.
func mustDocker(t testing.TB, args ...string) string {
	t.Helper()
	out, err := docker(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// removeStaleProjects removes the projects of killed test processes. Their names contain the ID of
// the process.
func removeStaleProjects(t testing.TB) {
	t.Helper()
	projects := map[string]bool{}
	for _, args := range [][]string{
		{"ps", "--all", "--format={{.Label \"" + projectLabel + "\"}}", "--filter=label=" + projectLabel},
		{"network", "ls", "--format={{.Label \"" + projectLabel + "\"}}", "--filter=label=" + projectLabel},
		{"volume", "ls", "--format={{.Label \"" + projectLabel + "\"}}", "--filter=label=" + projectLabel},
		{"image", "ls", "--format={{.Tag}}", "--filter=reference=" + imagesPrefix + "/*"},
	} {
		for name := range strings.FieldsSeq(mustDocker(t, args...)) {
			if strings.HasPrefix(name, projectPrefix) {
				projects[name] = true
			}
		}
	}
	for name := range projects {
		id, _, _ := strings.Cut(strings.TrimPrefix(name, projectPrefix), "-")
		pid, err := strconv.Atoi(id)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); os.IsNotExist(err) {
			removeProject(t, name)
		}
	}
}

// removeProject removes the containers, networks, volumes and images of a project.
func removeProject(t testing.TB, project string) {
	t.Helper()
	filter := "--filter=label=" + projectLabel + "=" + project
	for _, step := range []struct{ list, remove []string }{
		{[]string{"ps", "--all", "--quiet", filter}, []string{"rm", "--force", "--volumes"}},
		{[]string{"network", "ls", "--quiet", filter}, []string{"network", "rm"}},
		{[]string{"volume", "ls", "--quiet", filter}, []string{"volume", "rm"}},
		{
			[]string{"image", "ls", "--format={{.Repository}}:{{.Tag}}",
				"--filter=reference=" + imagesPrefix + "/*:" + project + "*"},
			[]string{"image", "rm", "--force"},
		},
	} {
		// A failed removal does not affect the result. The next run removes the rest.
		if err := removeUntilGone(step.list, step.remove); err != nil {
			t.Logf("clean up: %v", err)
		}
	}
}

// disconnectAll disconnects the containers that networks still list. The engine keeps the endpoint
// of a container that was reconnected while it stopped.
func disconnectAll(networks []string) {
	for _, n := range networks {
		out, err := docker("network", "inspect", "--format={{range .Containers}}{{.Name}} {{end}}", n)
		if err != nil {
			continue
		}
		for name := range strings.FieldsSeq(out) {
			_, _ = docker("network", "disconnect", "--force", n, name) // the removal of the network reports what is left
		}
	}
}

// removeUntilGone removes the listed resources until the list is empty.
func removeUntilGone(list, remove []string) (err error) {
	for range removeTries {
		var out string
		if out, err = docker(list...); err == nil {
			ids := strings.Fields(out)
			if len(ids) == 0 {
				return nil
			}
			if remove[0] == "network" {
				disconnectAll(ids)
			}
			if _, err = docker(append(slices.Clone(remove), ids...)...); err == nil {
				return nil
			}
		}
		time.Sleep(removePause)
	}
	return err
}
