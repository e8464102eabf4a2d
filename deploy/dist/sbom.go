package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// spdxDocument is a bill of materials in the JSON form of SPDX 2.3.
type spdxDocument struct {
	Version       string         `json:"spdxVersion"`
	DataLicense   string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creationInfo   `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

// creationInfo states when and with which tool a document was created.
type creationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// spdxPackage describes a module or the binary.
type spdxPackage struct {
	ID            string        `json:"SPDXID"`
	Name          string        `json:"name"`
	Version       string        `json:"versionInfo,omitempty"`
	Purpose       string        `json:"primaryPackagePurpose,omitempty"`
	Download      string        `json:"downloadLocation"`
	FilesAnalyzed bool          `json:"filesAnalyzed"`
	Concluded     string        `json:"licenseConcluded"`
	Declared      string        `json:"licenseDeclared"`
	Copyright     string        `json:"copyrightText"`
	Checksums     []checksum    `json:"checksums,omitempty"`
	References    []externalRef `json:"externalRefs,omitempty"`
	Comment       string        `json:"comment,omitempty"`
}

// checksum is a checksum of a package.
type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

// externalRef names a package in another system, such as a package URL.
type externalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

// relationship relates two elements of a document.
type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const (
	documentID = "SPDXRef-DOCUMENT"
	programID  = "SPDXRef-Program"
)

// newSBOM returns the SPDX 2.3 document of a binary as JSON. The Go toolchain records the modules
// in the binary.
func newSBOM(name, binary string, created time.Time, notices moduleNotices) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read the build information of %s: %w", binary, err)
	}
	sum, err := sha256Of(binary)
	if err != nil {
		return nil, err
	}
	doc := spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: documentID, Name: name,
		// A unique name for each binary; it need not resolve.
		Namespace: "https://binnacle.invalid/spdx/" + url.PathEscape(name) + "-" + sum,
		Creation:  creationInfo{Created: created.UTC().Format(time.RFC3339), Creators: []string{"Tool: binnacle-dist"}},
		Packages: []spdxPackage{{
			ID:        programID,
			Name:      name,
			Purpose:   "APPLICATION",
			Download:  noAssertion,
			Concluded: noAssertion,
			Declared:  "Apache-2.0",
			Copyright: noAssertion,
			Checksums: []checksum{{Algorithm: "SHA256", Value: sum}},
			Comment:   "The checksum is that of the binary.",
		}},
		Relationships: []relationship{{documentID, "DESCRIBES", programID}},
	}
	deps := append([]*debug.Module{{Path: standardLibrary, Version: info.GoVersion}}, info.Deps...)
	for i, d := range deps {
		if d.Replace != nil {
			if d.Replace.Version == "" {
				continue // a folder of this repository, which the program's license covers
			}
			d = d.Replace
		}
		p, err := newPackage(i, d, notices)
		if err != nil {
			return nil, err
		}
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, relationship{programID, "STATIC_LINK", p.ID})
	}
	out, err := json.MarshalIndent(doc, "", "  ")
	return append(out, '\n'), err
}

// invalidIDChars matches characters that SPDX identifiers must not contain.
var invalidIDChars = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// newPackage returns the description of a module.
func newPackage(index int, dependency *debug.Module, notices moduleNotices) (spdxPackage, error) {
	license, err := notices.declaredLicense(dependency.Path)
	if err != nil {
		return spdxPackage{}, err
	}
	described := spdxPackage{
		ID:         fmt.Sprintf("SPDXRef-Module-%d-%s", index, invalidIDChars.ReplaceAllString(dependency.Path, "-")),
		Name:       dependency.Path,
		Version:    dependency.Version,
		Purpose:    "LIBRARY",
		Download:   "https://proxy.golang.org/" + escapeModulePath(dependency.Path) + "/@v/" + escapeModulePath(dependency.Version) + ".zip",
		Concluded:  noAssertion,
		Declared:   license,
		Copyright:  noAssertion,
		References: []externalRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + dependency.Path + "@" + url.PathEscape(dependency.Version)}},
	}
	if dependency.Path == standardLibrary {
		described.Download = "https://go.dev/dl/"
	}
	if dependency.Sum != "" {
		described.Comment = "go.sum has " + dependency.Sum
	}
	return described, nil
}

// escapeModulePath returns a path in the form of module proxies.
func escapeModulePath(path string) string {
	var out strings.Builder
	for _, r := range path {
		if r >= 'A' && r <= 'Z' {
			out.WriteByte('!')
			r += 'a' - 'A'
		}
		out.WriteRune(r)
	}
	return out.String()
}
