package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// config holds the command line options. The descriptions of the flags in main explain the fields.
type config struct {
	BinDir        string
	Out           string
	Builder       string
	Prefix        string
	Tag           string
	Version       string
	CABundle      string
	Dockerfile    string
	Services      []string
	Architectures []string

	log io.Writer
}

func main() {
	settings := config{log: os.Stdout}
	pflag.StringVar(&settings.BinDir, "bin-dir", "",
		"directory of static binaries, with a subdirectory per architecture if there are several; missing binaries are built")
	pflag.StringVar(&settings.Out, "out", "bin/images", "directory of the build contexts and the bills of materials")
	pflag.StringVar(&settings.Builder, "builder", "",
		"docker, podman or buildah; if empty, the first that works; none creates only contexts and bills of materials")
	pflag.StringVar(&settings.Prefix, "prefix", "localhost/binnacle", "prefix of image names")
	pflag.StringVar(&settings.Tag, "tag", "latest", "tag of the images")
	pflag.StringVar(&settings.Version, "version", "", "version of the suite that built binaries report; devel if empty")
	pflag.StringVar(&settings.CABundle, "ca-bundle", "/etc/ssl/certs/ca-certificates.crt",
		"public CAs that the services trust, for example for OpenID Connect providers")
	pflag.StringVar(&settings.Dockerfile, "dockerfile", "deploy/images/Dockerfile", "template of the Dockerfiles")
	pflag.StringSliceVar(&settings.Services, "service", append(suiteServices(), "balancer"),
		"services to build; also kube-apiserver (for kubeadm), etcd and nats-server")
	pflag.StringSliceVar(&settings.Architectures, "arch", []string{runtime.GOARCH}, "architectures: amd64, arm64, ...")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := settings.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// run builds the images of all selected services and architectures.
func (c *config) run(ctx context.Context) error {
	imageBuilder, err := findBuilder(ctx, c.Builder)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	stage := filepath.Join(c.Out, "context")
	if err := c.stageAll(ctx, stage); err != nil {
		return err
	}
	if imageBuilder == nil {
		return nil
	}
	for _, service := range c.Services {
		if err := c.buildImages(ctx, imageBuilder, stage, service); err != nil {
			return fmt.Errorf("image of %s: %w", service, err)
		}
	}
	return nil
}

// stageAll creates the build contexts and the bills of materials.
func (c *config) stageAll(ctx context.Context, stage string) error {
	if err := os.RemoveAll(stage); err != nil {
		return err
	}
	recipe, err := os.ReadFile(c.Dockerfile)
	if err != nil {
		return fmt.Errorf("--dockerfile: %w", err)
	}
	for _, service := range c.Services {
		staged, err := findProgram(service)
		if err != nil {
			return err
		}
		dir := filepath.Join(stage, service)
		if err := c.stageProgram(ctx, staged, dir); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(staged.dockerfile(string(recipe))), 0o644); err != nil {
			return err
		}
		ca := filepath.Join(dir, "ca-certificates.crt")
		if err := linkOrCopy(c.CABundle, ca, 0o644); err != nil {
			return fmt.Errorf("--ca-bundle: %w", err)
		}
		if err := c.reportSize(staged, dir, ca); err != nil {
			return err
		}
	}
	return nil
}

// stageProgram adds the binaries of a program to its build context dir, and writes their bills of
// materials.
func (c *config) stageProgram(ctx context.Context, staged program, dir string) error {
	for _, arch := range c.Architectures {
		if err := os.MkdirAll(filepath.Join(dir, arch), 0o755); err != nil {
			return err
		}
		path := filepath.Join(dir, arch, staged.name)
		if err := c.provideBinary(ctx, staged, arch, path); err != nil {
			return fmt.Errorf("binary of %s for %s: %w", staged.name, arch, err)
		}
		if err := checkStatic(path, arch); err != nil {
			return err
		}
		bill := filepath.Join(c.Out, staged.name+"-"+arch+".cdx.json")
		if err := writeBill(path, staged.name, bill); err != nil {
			return err
		}
		fmt.Fprintf(c.log, "%s\n", bill)
	}
	return nil
}

// reportSize prints the size of a program's image for each architecture: the binary in the build
// context dir plus the CA certificates in the file ca.
func (c *config) reportSize(reported program, dir, bundle string) error {
	for _, arch := range c.Architectures {
		size, err := measureFiles(filepath.Join(dir, arch, reported.name), bundle)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.log, "%s for %s: %s\n", reported.name, arch, size)
	}
	return nil
}

// provideBinary creates the binary of a program at path. It takes the binary from BinDir, or builds
// it if it does not exist there.
func (c *config) provideBinary(ctx context.Context, wanted program, arch, path string) error {
	if c.BinDir != "" {
		from := filepath.Join(c.BinDir, wanted.name)
		if len(c.Architectures) > 1 {
			from = filepath.Join(c.BinDir, arch, wanted.name)
		}
		if _, err := os.Stat(from); !errors.Is(err, fs.ErrNotExist) {
			return linkOrCopy(from, path, 0o755)
		}
		fmt.Fprintf(c.log, "%s does not exist\n", from)
	}
	fmt.Fprintf(c.log, "build %s for %s\n", wanted.name, arch)
	return wanted.buildBinary(ctx, arch, c.Version, path)
}

// buildImages builds the images of a service, and a manifest list for several architectures.
func (c *config) buildImages(ctx context.Context, imageBuilder *builder, stage, service string) error {
	name := strings.TrimSuffix(c.Prefix, "/") + "/" + service + ":" + c.Tag
	var images []string
	for _, arch := range c.Architectures {
		tag := name
		if len(c.Architectures) > 1 {
			tag += "-" + arch
		}
		if err := imageBuilder.buildImage(ctx, filepath.Join(stage, service), arch, tag); err != nil {
			return err
		}
		fmt.Fprintln(c.log, tag)
		images = append(images, tag)
	}
	if len(images) < 2 {
		return nil
	}
	joined, err := imageBuilder.createManifestList(ctx, name, images)
	if err == nil && joined {
		fmt.Fprintln(c.log, name)
	}
	return err
}

// linkOrCopy creates a file with the content of another one: as a hard link if both are on the same
// file system, and otherwise as a copy with the given mode. A hard link has the mode of the
// original.
func linkOrCopy(from, target string, mode os.FileMode) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	if err := os.Link(from, target); err == nil {
		return nil
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	out, err := os.OpenFile(target, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, source); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
