package golden

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"gopkg.in/yaml.v3"
)

// KnownDifference is a step with an accepted difference, and the reason.
type KnownDifference struct {
	Case   string `yaml:"case"` // file name without suffix
	Step   int    `yaml:"step"` // from 1
	Reason string `yaml:"reason"`
}

// stepID identifies a step of a case.
type stepID struct {
	caseFile string
	step     int
}

// KnownDifferences maps steps to the reasons of their differences.
type KnownDifferences map[stepID]string

// LoadKnown reads a YAML list of known differences.
func LoadKnown(file string) (KnownDifferences, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	var list []KnownDifference
	if err := dec.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	known := KnownDifferences{}
	for _, knownDifference := range list {
		id := stepID{knownDifference.Case, knownDifference.Step}
		if _, twice := known[id]; twice || knownDifference.Reason == "" {
			return nil, fmt.Errorf("%s: %s step %d is a duplicate or has no reason", file, knownDifference.Case, knownDifference.Step)
		}
		known[id] = knownDifference.Reason
	}
	return known, nil
}

// Check returns an error for a step that differs and is not listed, and for a listed step that does
// not differ.
func (k KnownDifferences) Check(result Result) error {
	reason, listed := k[stepID{result.Case.File, result.Step}]
	switch {
	case listed && result.Equivalent:
		return fmt.Errorf("%s step %d agrees, but is listed as a known difference (%s): remove it from the list",
			result.Case.File, result.Step, reason)
	case !listed && !result.Equivalent:
		return errors.New(result.Describe(true))
	}
	return nil
}

// MissingSteps returns the listed steps that none of the cases has.
func (k KnownDifferences) MissingSteps(cases []*Case) (strays []string) {
	steps := map[string]int{}
	for _, c := range cases {
		steps[c.File] = len(c.Steps)
	}
	for id := range k {
		if id.step < 1 || id.step > steps[id.caseFile] {
			strays = append(strays, fmt.Sprintf("%s step %d", id.caseFile, id.step))
		}
	}
	return strays
}
