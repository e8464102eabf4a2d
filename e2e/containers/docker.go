package containers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	projectPrefix = "binnacle-e2e-"
	imagesPrefix  = "localhost/binnacle-e2e"
	projectLabel  = "com.docker.compose.project"
	serviceLabel  = "com.docker.compose.service"
	dockerTimeout = 2 * time.Minute
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
	if out, err := exec.Command("docker", "info", "--format={{.ServerVersion}}").CombinedOutput(); err != nil {
		t.Skipf("no Docker Engine answers here, so nothing is run in containers: %v: %s", err, out)
	}
	if exec.Command("docker", "compose", "version").Run() != nil && exec.Command("docker-compose", "version").Run() != nil {
		t.Skip("neither docker compose nor docker-compose is here, so nothing is run in containers")
	}
	removeLeftovers(t)
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
		{[]string{"image", "ls", "--format={{.Repository}}:{{.Tag}}", "--filter=reference=" + imagesPrefix + "/*:" + project + "*"}, []string{"image", "rm", "--force"}},
	} {
		out, err := docker(step.list...)
		if ids := strings.Fields(out); err == nil && len(ids) > 0 {
			_, err = docker(append(step.remove, ids...)...)
		}
		if err != nil {
			t.Errorf("clean up: %v", err)
		}
	}
}
