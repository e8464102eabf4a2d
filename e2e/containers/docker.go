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
	// askTimeout is how long an engine that works takes at most to say so.
	askTimeout = 20 * time.Second
	// The engine lets go of what a container used a moment after the container.
	removeTries = 20
	removePause = 500 * time.Millisecond
)

// needDocker skips a test where no engine answers.
func needDocker(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	if runtime.GOOS != "linux" {
		t.Skip("networks of containers cannot be reached from here")
	}
	if err := answers("docker", "info", "--format={{.ServerVersion}}"); err != nil {
		t.Skipf("no Docker Engine answers here, so nothing is run in containers: %v", err)
	}
	if err := answers("docker", "compose", "version"); err != nil {
		if older := answers("docker-compose", "version"); older != nil {
			t.Skipf("neither docker compose nor docker-compose is here, so nothing is run in containers: %v; %v", err, older)
		}
	}
	removeLeftovers(t)
}

func answers(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, errors.Join(err, ctx.Err()), strings.TrimSpace(string(out)))
	}
	return nil
}

// docker runs a command of the client.
func docker(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dockerTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

func mustDocker(t testing.TB, args ...string) string {
	t.Helper()
	out, err := docker(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// removeLeftovers removes what processes left that have been killed.
func removeLeftovers(t testing.TB) {
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
			remove(t, name)
		}
	}
}

// remove removes containers, networks and images of a project.
func remove(t testing.TB, project string) {
	t.Helper()
	filter := "--filter=label=" + projectLabel + "=" + project
	for _, step := range []struct{ list, remove []string }{
		{[]string{"ps", "--all", "--quiet", filter}, []string{"rm", "--force", "--volumes"}},
		{[]string{"network", "ls", "--quiet", filter}, []string{"network", "rm"}},
		{[]string{"volume", "ls", "--quiet", filter}, []string{"volume", "rm"}},
		{[]string{"image", "ls", "--format={{.Repository}}:{{.Tag}}", "--filter=reference=" + imagesPrefix + "/*:" + project + "*"}, []string{"image", "rm", "--force"}},
	} {
		// What the engine keeps says nothing of what was tested, and goes with the next run.
		if err := removeAll(step.list, step.remove); err != nil {
			t.Logf("clean up: %v", err)
		}
	}
}

// free disconnects what networks still list. The engine keeps the place of a container
// that is gone when it was connected again while it ended.
func free(networks []string) {
	for _, n := range networks {
		out, err := docker("network", "inspect", "--format={{range .Containers}}{{.Name}} {{end}}", n)
		if err != nil {
			continue
		}
		for name := range strings.FieldsSeq(out) {
			_, _ = docker("network", "disconnect", "--force", n, name) // what still holds says the removal
		}
	}
}

// removeAll removes what a command lists until it lists nothing.
func removeAll(list, remove []string) (err error) {
	for range removeTries {
		var out string
		if out, err = docker(list...); err == nil {
			ids := strings.Fields(out)
			if len(ids) == 0 {
				return nil
			}
			if remove[0] == "network" {
				free(ids)
			}
			if _, err = docker(append(slices.Clone(remove), ids...)...); err == nil {
				return nil
			}
		}
		time.Sleep(removePause)
	}
	return err
}
