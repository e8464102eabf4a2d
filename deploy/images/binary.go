package main

import (
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
)

// elfMachines maps GOARCH to the machine type of ELF files.
func elfMachines() map[string]elf.Machine {
	return map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM, "386": elf.EM_386,
		"ppc64le": elf.EM_PPC64, "riscv64": elf.EM_RISCV, "s390x": elf.EM_S390,
	}
}

// checkStatic rejects a binary that needs a dynamic loader or is for another architecture.
func checkStatic(path, arch string) error {
	file, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s is not a Linux binary: %w", path, err)
	}
	defer file.Close()
	if expected, ok := elfMachines()[arch]; !ok || file.Machine != expected {
		return fmt.Errorf("%s is for %s, not for %s", path, file.Machine, arch)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static: build it with CGO_ENABLED=0", path)
		}
	}
	return nil
}

// billOfMaterials is a bill of materials in the CycloneDX 1.5 format.
type billOfMaterials struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

// metadata names the subject of a bill of materials.
type metadata struct {
	Component component `json:"component"`
}

// component is the binary or a module in it.
type component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

// property is a build setting of a component.
type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// writeBill writes the bill of materials from the build information in a binary.
func writeBill(binary, service, path string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("build information of %s: %w", binary, err)
	}
	data, err := json.MarshalIndent(newBill(service, info), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// newBill returns the bill of materials of a service.
func newBill(service string, info *debug.BuildInfo) billOfMaterials {
	bill := billOfMaterials{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata: metadata{component{Type: "application", Name: service, Version: info.Main.Version, Properties: []property{
			{"go:version", info.GoVersion}, {"go:path", info.Path},
		}}},
	}
	for _, s := range info.Settings {
		bill.Metadata.Component.Properties = append(bill.Metadata.Component.Properties, property{"go:build:" + s.Key, s.Value})
	}
	bill.Components = append(bill.Components, component{
		Type:    "library",
		Name:    "std",
		Version: info.GoVersion,
		PURL:    "pkg:golang/std@" + info.GoVersion,
	})
	for _, module := range info.Deps {
		if module.Replace != nil {
			if module.Replace.Version == "" {
				continue // a folder of this repository
			}
			module = module.Replace
		}
		c := component{Type: "library", Name: module.Path, Version: module.Version, PURL: "pkg:golang/" + module.Path + "@" + module.Version}
		if module.Sum != "" {
			c.Properties = []property{{"go:sum", module.Sum}}
		}
		bill.Components = append(bill.Components, c)
	}
	return bill
}
