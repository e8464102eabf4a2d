package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// noBuilder selects no builder.
const noBuilder = "none"

// builder is a program that builds images.
type builder struct {
	name string
	// probe is a command that succeeds only if the builder works.
	probe []string
	// command builds an image from a Dockerfile.
	command string
	// lists reports whether it creates manifest lists without a registry.
	lists bool
}

func builders() []builder {
	return []builder{
		{name: "docker", probe: []string{"info"}, command: "build"},
		{name: "podman", probe: []string{"info"}, command: "build", lists: true},
		{name: "buildah", probe: []string{"info"}, command: "bud", lists: true},
	}
}

// findBuilder returns the requested builder, or the first that works; nil for none.
func findBuilder(ctx context.Context, desired string) (*builder, error) {
	if desired == noBuilder {
		return nil, nil
	}
	var errs []error
	for _, b := range builders() {
		if desired != "" && desired != b.name {
			continue
		}
		if _, err := b.runCommand(ctx, b.probe...); err != nil {
			errs = append(errs, err)
			continue
		}
		return &b, nil
	}
	if len(errs) == 0 {
		return nil, fmt.Errorf("--builder %q is not docker, podman, buildah or none", desired)
	}
	return nil, fmt.Errorf("no image builder works: %w", errors.Join(errs...))
}

// buildImage builds an image from a directory with a Dockerfile.
func (b *builder) buildImage(ctx context.Context, dir, arch, tag string) error {
	args := []string{b.command, "--file=" + filepath.Join(dir, "Dockerfile"), "--build-arg=TARGETARCH=" + arch, "--tag=" + tag}
	if arch != runtime.GOARCH {
		args = append(args, "--platform=linux/"+arch) // not supported by every builder
	}
	_, err := b.runCommand(ctx, append(args, dir)...)
	return err
}

// createManifestList creates a manifest list, and reports whether the builder supports that.
func (b *builder) createManifestList(ctx context.Context, name string, images []string) (bool, error) {
	if !b.lists {
		return false, nil
	}
	// Remove the list of an earlier run.
	_, _ = b.runCommand(ctx, "manifest", "rm", name)
	if _, err := b.runCommand(ctx, "manifest", "create", name); err != nil {
		return false, err
	}
	for _, image := range images {
		if _, err := b.runCommand(ctx, "manifest", "add", name, "containers-storage:"+image); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (b *builder) runCommand(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, b.name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", b.name, args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
