package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

const (
	// programName is the name of the released binary, and programPath its main package.
	programName = "binnacle"
	programPath = "./cmd/binnacle"
	// versionPath is the package whose variables hold the version. The linker sets them.
	versionPath = "binnacle/libs/version"
)

// config holds the command line options and the data of the checkout.
type config struct {
	// Out is the folder of the release.
	Out string
	// Version is the version of the suite. It is part of the names of files.
	Version       string
	Architectures []string
	// Source is the URI of the repository, and Builder the URI of the system that runs dist. Both
	// are recorded in the provenance.
	Source, Builder string
	// Commit is empty if the sources have no git history or differ from the commit.
	Commit string
	// Time is the time of the commit or of SOURCE_DATE_EPOCH, so that builds are reproducible.
	Time time.Time
	log  io.Writer
}

// localBuilder is the builder of a release that was built by hand.
const localBuilder = "https://binnacle.invalid/dist/local"

func main() {
	settings := config{log: os.Stdout}
	pflag.StringVar(&settings.Out, "out", "dist", "Folder of the release; existing files are replaced.")
	pflag.StringVar(&settings.Version, "version", "", "Version of the suite; the output of git describe if empty.")
	pflag.StringSliceVar(&settings.Architectures, "arch", []string{"amd64", "arm64"}, "Architectures, by Go's names.")
	pflag.StringVar(&settings.Source, "source", "",
		"URI of the repository for the provenance, such as git+https://example.org/binnacle@refs/tags/v1.0.0.")
	pflag.StringVar(&settings.Builder, "builder-id", localBuilder, "URI of the builder for the provenance.")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := settings.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// run builds the release of each architecture, the provenance and the checksums.
func (c *config) run(ctx context.Context) error {
	if err := c.complete(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	var created []string
	for _, arch := range c.Architectures {
		names, err := c.buildRelease(ctx, arch)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		created = append(created, names...)
	}
	goVersion, err := commandOutput(ctx, "go", "env", "GOVERSION")
	if err != nil {
		return err
	}
	data, err := c.newStatement(created, goVersion)
	if err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	statement := fmt.Sprintf("%s-%s.provenance.json", programName, c.Version)
	if err := os.WriteFile(filepath.Join(c.Out, statement), data, 0o644); err != nil {
		return err
	}
	return writeSums(c.Out, append(created, statement))
}

// complete sets the version, if no option did, and the commit and time of the checkout.
func (c *config) complete(ctx context.Context) error {
	var err error
	if c.Version == "" {
		if c.Version, err = commandOutput(ctx, "git", "describe", "--tags", "--always", "--dirty"); err != nil {
			return fmt.Errorf("no --version: %w", err)
		}
	}
	if strings.ContainsAny(c.Version, "/\\ \t\n'\"") {
		return fmt.Errorf("--version %q cannot be part of a file's name", c.Version)
	}
	changes, err := commandOutput(ctx, "git", "status", "--porcelain")
	if err == nil && changes == "" {
		c.Commit, err = commandOutput(ctx, "git", "rev-parse", "HEAD")
	}
	if err != nil {
		c.Commit = "" // sources without a git history
	}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		if epoch, err = commandOutput(ctx, "git", "log", "-1", "--format=%ct"); err != nil {
			return fmt.Errorf("cannot determine the build time: set SOURCE_DATE_EPOCH or build from a git checkout: %w", err)
		}
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || seconds < 0 {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", epoch)
	}
	c.Time = time.Unix(seconds, 0).UTC()
	return nil
}

// buildRelease creates the release files of one architecture in Out: an archive with the binary,
// the documentation and the licenses, and a bill of materials. It returns the names of the two
// files.
func (c *config) buildRelease(ctx context.Context, arch string) ([]string, error) {
	name := fmt.Sprintf("%s-%s-linux-%s", programName, c.Version, arch)
	work, err := os.MkdirTemp(c.Out, ".work-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	binary := filepath.Join(work, programName)
	fmt.Fprintf(c.log, "build %s\n", name)
	if err := c.buildBinary(ctx, arch, binary); err != nil {
		return nil, err
	}
	modules, err := listModules(ctx, arch)
	if err != nil {
		return nil, err
	}
	notices, err := collectNotices(modules)
	if err != nil {
		return nil, err
	}
	bill, err := newSBOM(name, binary, c.Time, notices)
	if err != nil {
		return nil, err
	}
	pages, err := documentEntries("docs")
	if err != nil {
		return nil, err
	}
	entries := slices.Concat([]entry{
		{name: programName, path: binary, executable: true},
		{name: programName + ".spdx.json", content: bill},
		{name: "LICENSE", path: "LICENSE"},
		{name: "README.md", path: "README.md"},
	}, pages, notices.entries())
	archive, sbom := name+".tar.gz", name+".spdx.json"
	if err := os.WriteFile(filepath.Join(c.Out, sbom), bill, 0o644); err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(c.Out, archive), func(w io.Writer) error {
		return writeArchive(w, name, c.Time, entries)
	}); err != nil {
		return nil, err
	}
	return []string{archive, sbom}, nil
}

// documentEntries returns the files below a folder of documentation.
func documentEntries(folder string) (out []entry, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out = append(out, entry{name: filepath.ToSlash(path), path: path})
		}
		return err
	})
	return out, err
}

// buildBinary builds the binary for an architecture. The binary contains the version and the
// commit.
func (c *config) buildBinary(ctx context.Context, arch, path string) error {
	flags := []string{"-s", "-w", "-buildid=", "-X", versionPath + ".release=" + c.Version}
	if c.Commit != "" {
		flags = append(flags, "-X", versionPath+".commit="+c.Commit, "-X", versionPath+".date="+c.Time.Format(time.RFC3339))
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags=nomsgpack,grpcnotrace",
		"-ldflags="+strings.Join(flags, " "), "-o", path, programPath)
	cmd.Env = buildEnv(arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// buildEnv returns the environment of a build for an architecture.
func buildEnv(arch string) []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
}

// commandOutput returns the output of a program, without the trailing newline.
func commandOutput(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w: %s", name, args[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// writeSums writes the file SHA256SUMS with the checksums of the named files in dir, in the format
// of `sha256sum --check`.
func writeSums(dir string, names []string) error {
	var text strings.Builder
	for _, n := range names {
		sum, err := sha256Of(filepath.Join(dir, n))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, n)
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(text.String()), 0o644)
}

// sha256Of returns the SHA-256 of a file in hexadecimal.
func sha256Of(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writeFile creates a file, and calls write to write its content.
func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
