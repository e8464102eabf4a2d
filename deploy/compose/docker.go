package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// pullTimeout bounds the pull of an image. Without a registry the image must be built here, which
// should be detected soon.
const pullTimeout = 2 * time.Minute

// consoleProfile is the compose profile that includes the console, and the console's name there.
const consoleProfile = "console"

// findCompose returns the program that reads compose files.
func findCompose(ctx context.Context) ([]string, error) {
	var errs []error
	for _, program := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		out, err := exec.CommandContext(ctx, program[0], append(program[1:], "version")...).CombinedOutput()
		if err == nil {
			return program, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w: %s", strings.Join(program, " "), err, strings.TrimSpace(string(out))))
	}
	return nil, fmt.Errorf("neither docker compose nor docker-compose works here: %w", errors.Join(errs...))
}

// runCompose runs a compose command with the variables of the compose file.
func (c *config) runCompose(ctx context.Context, compose, env []string, args ...string) error {
	composeArgs := append(append([]string{}, compose[1:]...), "--project-name", c.Project, "--file", c.File)
	if c.etcdctl {
		composeArgs = append(composeArgs, "--file", filepath.Join(filepath.Dir(c.File), "etcd-health.yaml"))
	}
	cmd := exec.CommandContext(ctx, compose[0], append(composeArgs, args...)...)
	cmd.Env = append(append(os.Environ(), env...), c.composeVariables()...)
	cmd.Stdout = c.out
	cmd.Stderr = c.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", strings.Join(compose, " "), strings.Join(args, " "), err)
	}
	return nil
}

// composeVariables returns the variables of the compose file, except for third-party images.
func (c *config) composeVariables() []string {
	uid, gid := containerUser()
	var profiles []string
	if c.Console {
		profiles = append(profiles, consoleProfile)
	}
	return []string{
		"COMPOSE_PROFILES=" + strings.Join(profiles, ","), "BINNACLE_CONSOLE_PORT=" + strconv.Itoa(c.ConsolePort),
		"BINNACLE_STATE=" + c.State, "BINNACLE_IMAGES=" + c.Images, "BINNACLE_TAG=" + c.Tag,
		"BINNACLE_PORT=" + strconv.Itoa(c.Port), fmt.Sprintf("RUN_AS=%d:%d", uid, gid),
	}
}

// containerUser returns the user that the containers run as: the current user, so that it can
// remove their files, but never root.
func containerUser() (uid, gid int) {
	const nonroot = 65532
	uid, gid = os.Getuid(), os.Getgid()
	if uid <= 0 {
		return nonroot, nonroot
	}
	return uid, gid
}

func runDocker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// stockImages returns the third-party images, by the variable of the compose file, and the programs
// that can replace them.
func stockImages() map[string][2]string {
	return map[string][2]string{
		"ETCD_IMAGE": {"quay.io/coreos/etcd:v3.6.16", "etcd"},
		"NATS_IMAGE": {"docker.io/library/nats:2.12", "nats-server"},
	}
}

// findImages builds or finds all images, and returns the variables with the images of etcd and
// NATS.
func (c *config) findImages(ctx context.Context) (env []string, err error) {
	var missing []string
	for variable, image := range stockImages() {
		name := image[0]
		if !c.hasImage(ctx, name) {
			name = c.Images + "/" + image[1] + ":" + c.Tag
			missing = append(missing, image[1])
		}
		env = append(env, variable+"="+name)
		if variable == "ETCD_IMAGE" {
			c.etcdctl = name == image[0]
		}
	}
	if c.NoBuild {
		return env, nil
	}
	args := []string{"run", "./deploy/images", "--builder=docker", "--prefix=" + c.Images, "--tag=" + c.Tag}
	c.printf("make images")
	if err := c.goRun(ctx, args...); err != nil {
		return nil, err
	}
	if len(missing) == 0 {
		return env, nil
	}
	c.printf("cannot pull the stock images of etcd and NATS; building %s from their Go modules", strings.Join(missing, " and "))
	return env, c.goRun(ctx, append(args, "--out=bin/images-stock", "--service="+strings.Join(missing, ","))...)
}

// hasImage reports whether a third-party image exists on this machine, or can be pulled.
func (c *config) hasImage(ctx context.Context, image string) bool {
	if _, err := runDocker(ctx, "image", "inspect", image); err == nil {
		return true
	}
	if c.NoPull || c.NoBuild {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	c.printf("pull %s", image)
	_, err := runDocker(ctx, "pull", image)
	c.NoPull = err != nil // the next one would fail too
	return err == nil
}

func (c *config) goRun(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout = c.out
	cmd.Stderr = c.out
	return cmd.Run()
}
