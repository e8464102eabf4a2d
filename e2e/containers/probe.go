package containers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// requireImages builds the images. It skips a test if the engine cannot build images, cannot mount
// files of this machine (a remote engine) or has networks that are unreachable from here (an engine
// in a virtual machine).
func requireImages(t *testing.T) {
	t.Helper()
	if err := imageBuildError(); err != nil {
		t.Skipf("the Docker Engine cannot build images: %v", err)
	}
	if err := buildImagesOnce(); err != nil {
		t.Fatal(err)
	}
	if err := containerRunError(); err != nil {
		t.Skipf("the Docker Engine is not usable for tests: %v", err)
	}
}

// imageBuildError returns why no image can be built, or nil.
var imageBuildError = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "binnacle-containers-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY Dockerfile /\n"), 0o644); err != nil {
		return err
	}
	name := imagesPrefix + "/probe:" + imageTag()
	if _, err := docker("build", "--tag="+name, dir); err != nil {
		return err
	}
	_, err = docker("image", "rm", "--force", name)
	return err
})

// containerRunError returns why containers cannot run as the tests need them, or nil: on a
// reachable network of their own and with a file of this machine. It uses a NATS server.
var containerRunError = sync.OnceValue(func() (err error) {
	project := imageTag() + "-probe"
	label := "--label=" + projectLabel + "=" + project
	dir, err := os.MkdirTemp("", "binnacle-containers-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	config := filepath.Join(dir, "nats.conf")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(config, []byte("port: 4333\n"), 0o644)); err != nil {
		return err
	}
	defer func() {
		filter := "--filter=label=" + projectLabel + "=" + project
		err = errors.Join(err, removeUntilGone([]string{"ps", "--all", "--quiet", filter}, []string{"rm", "--force"}),
			removeUntilGone([]string{"network", "ls", "--quiet", filter}, []string{"network", "rm"}))
	}()
	if _, err := docker("network", "create", "--internal", label, project); err != nil {
		return err
	}
	out, err := docker("run", "--detach", "--name="+project, "--network="+project, label, "--read-only", "--cap-drop=ALL",
		"--security-opt=no-new-privileges:true", "--volume="+config+":/nats.conf:ro", imageOf("nats-server"),
		"--config=/nats.conf")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	address, err := docker("inspect", "--format={{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", project)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	for {
		if err = tryConnect(ctx, net.JoinHostPort(strings.TrimSpace(address), "4333")); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			log, logErr := docker("logs", project)
			return fmt.Errorf("container not reachable: %w (%s, %v)", err, log, logErr)
		case <-time.After(removePause):
		}
	}
})

// tryConnect opens and closes a TCP connection.
func tryConnect(ctx context.Context, address string) error {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
