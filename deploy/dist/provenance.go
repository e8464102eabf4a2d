package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"
)

// Types of the statement (in-toto attestation framework v1, SLSA provenance v1) and of the build.
const (
	statementType  = "https://in-toto.io/Statement/v1"
	provenanceType = "https://slsa.dev/provenance/v1"
	// buildType identifies the meaning of the parameters. docs/dev/releasing.md describes them.
	buildType = "https://binnacle.invalid/dist/v1"
)

// statement says how the files of a release were built.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

// resource is a file or source with its digests.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// provenance is the predicate of the statement, in the form of SLSA v1.
type provenance struct {
	Definition buildDefinition `json:"buildDefinition"`
	Run        runDetails      `json:"runDetails"`
}

// buildDefinition describes the inputs of a build.
type buildDefinition struct {
	Type         string             `json:"buildType"`
	External     externalParameters `json:"externalParameters"`
	Internal     map[string]string  `json:"internalParameters"`
	Dependencies []resource         `json:"resolvedDependencies"`
}

// externalParameters are the values that the caller of dist chose.
type externalParameters struct {
	Version       string   `json:"version"`
	Architectures []string `json:"architectures"`
	Source        string   `json:"source,omitempty"`
}

// runDetails describes the execution of a build.
type runDetails struct {
	Builder builder `json:"builder"`
}

// builder identifies the system that ran a build.
type builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version"`
}

// newStatement returns the provenance of files in the output folder. goVersion is the version of
// the Go toolchain.
func (c *config) newStatement(files []string, goVersion string) ([]byte, error) {
	result := statement{Type: statementType, PredicateType: provenanceType, Predicate: provenance{
		Definition: buildDefinition{
			Type:     buildType,
			External: externalParameters{c.Version, c.Architectures, c.Source},
			Internal: map[string]string{"SOURCE_DATE_EPOCH": strconv.FormatInt(c.Time.Unix(), 10)},
		},
		Run: runDetails{builder{c.Builder, map[string]string{"go": goVersion}}},
	}}
	for _, name := range files {
		sum, err := sha256Of(filepath.Join(c.Out, name))
		if err != nil {
			return nil, err
		}
		result.Subject = append(result.Subject, resource{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	source := resource{Name: "source", URI: c.Source}
	if c.Commit != "" {
		source.Digest = map[string]string{"gitCommit": c.Commit}
	}
	modules, err := sha256Of("go.sum") // it has the checksums of all modules
	if err != nil {
		return nil, err
	}
	result.Predicate.Definition.Dependencies = []resource{source, {Name: "go.sum", Digest: map[string]string{"sha256": modules}}}
	out, err := json.MarshalIndent(result, "", "  ")
	return append(out, '\n'), err
}
