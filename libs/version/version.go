// Package version says which Kubernetes release the suite implements and what
// it was built from. It is read by --version, /version, /metrics and the
// User-Agent of every client in the suite.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// The Kubernetes release whose API the suite serves.
const (
	Major      = "1"
	Minor      = "33"
	Kubernetes = "v1.33.13"
	// MinorNumber is Minor.
	MinorNumber = 33
	// OldestEmulated is the oldest minor version that a server can behave as.
	OldestEmulated = 31
)

// What the linker says of a release (-X binnacle/libs/version.release=v1.2.3); nobody
// else writes them. deploy/dist sets them.
var release, commit, date string

// Suite is binnacle's own version: "devel" for what is no release.
func Suite() string {
	if release == "" {
		return "devel"
	}
	return release
}

// Get returns the build's data in the form that clients of Kubernetes parse.
// Data that the build did not record is empty.
func Get() apiversion.Info {
	info := apiversion.Info{
		Major:                 Major,
		Minor:                 Minor,
		EmulationMajor:        Major,
		EmulationMinor:        Minor,
		MinCompatibilityMajor: Major,
		MinCompatibilityMinor: "32",
		GitVersion:            Kubernetes,
		GoVersion:             runtime.Version(),
		Compiler:              runtime.Compiler,
		Platform:              runtime.GOOS + "/" + runtime.GOARCH,
	}
	if commit != "" {
		info.GitCommit, info.BuildDate, info.GitTreeState = commit, date, "clean"
		return info
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.GitCommit = s.Value
		case "vcs.time":
			info.BuildDate = s.Value
		case "vcs.modified":
			info.GitTreeState = "clean"
			if s.Value == "true" {
				info.GitTreeState = "dirty"
			}
		}
	}
	return info
}

// Emulating is Get for a server that behaves as a minor version of Kubernetes 1.
func Emulating(minor int) apiversion.Info {
	info := Get()
	info.EmulationMinor = strconv.Itoa(minor)
	info.MinCompatibilityMinor = strconv.Itoa(max(minor-1, OldestEmulated))
	return info
}

// UserAgent is what a component's clients call themselves.
func UserAgent(component string) string {
	return fmt.Sprintf("%s/%s (%s/%s) binnacle", component, Kubernetes, runtime.GOOS, runtime.GOARCH)
}
