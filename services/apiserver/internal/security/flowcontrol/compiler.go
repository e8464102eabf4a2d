package flowcontrol

import (
	"maps"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// Compiler builds configurations incrementally: it compiles only changed objects. It is not safe for
// concurrent use.
type Compiler struct {
	schemas map[string]*compiledSchema // of existing objects
	levels  map[string]*levelSpec      // of existing objects
	// The mandatory ones replace missing objects.
	mandatorySchemas map[string]*compiledSchema
	mandatoryLevels  map[string]*levelSpec

	index  index
	config *Config     // the last result; nil after a change
	specs  *levelSpecs // the last result; nil after a change of a level
}

// NewCompiler returns a compiler without objects.
func NewCompiler() *Compiler {
	c := &Compiler{
		schemas: map[string]*compiledSchema{}, levels: map[string]*levelSpec{},
		mandatorySchemas: map[string]*compiledSchema{}, mandatoryLevels: map[string]*levelSpec{}, index: newIndex(),
	}
	for _, s := range mandatorySchemas() {
		r := compileSchema(s)
		c.mandatorySchemas[s.Name] = r
		c.index.add(r)
	}
	for _, l := range mandatoryLevels() {
		c.mandatoryLevels[l.Name] = compileLevel(l)
	}
	return c
}

// PutSchema adds or replaces a flow schema. It does not keep the object.
func (c *Compiler) PutSchema(s *flowcontrolv1.FlowSchema) {
	c.replace(s.Name, compileSchema(s))
}

// DropSchema removes a flow schema.
func (c *Compiler) DropSchema(name string) { c.replace(name, nil) }

func (c *Compiler) replace(name string, next *compiledSchema) {
	before := c.schemas[name]
	if before == nil {
		before = c.mandatorySchemas[name]
	}
	if before != nil {
		c.index.remove(before)
	}
	if next != nil {
		c.schemas[name] = next
	} else {
		delete(c.schemas, name)
		next = c.mandatorySchemas[name]
	}
	if next != nil {
		c.index.add(next)
	}
	c.config = nil
}

// PutLevel adds or replaces a priority level. It does not keep the object.
func (c *Compiler) PutLevel(l *flowcontrolv1.PriorityLevelConfiguration) {
	c.levels[l.Name] = compileLevel(l)
	c.config, c.specs = nil, nil
}

// DropLevel removes a priority level.
func (c *Compiler) DropLevel(name string) {
	delete(c.levels, name)
	c.config, c.specs = nil, nil
}

// Config returns the configuration of the current objects.
func (c *Compiler) Config() *Config {
	if c.specs == nil {
		c.specs = &levelSpecs{maps.Clone(c.mandatoryLevels)}
		for name, p := range c.levels {
			if must := c.mandatoryLevels[name]; must != nil && (must.kind == kindExempt) != (p.kind == kindExempt) {
				kept := *must
				kept.uid = p.uid // an invalid object does not change the type
				p = &kept
			}
			c.specs.byName[name] = p
		}
		c.config = nil
	}
	if c.config == nil {
		c.config = &Config{
			index: c.index.copy(), levelSpecs: c.specs, exempt: c.schemaOrMandatory(Exempt), last: c.schemaOrMandatory(CatchAll),
		}
	}
	return c.config
}

// schemaOrMandatory returns the schema of a name, or the mandatory one if that schema does not exist or has
// no level.
func (c *Compiler) schemaOrMandatory(name string) *compiledSchema {
	if r := c.schemas[name]; r != nil && c.specs.byName[r.level] != nil {
		return r
	}
	return c.mandatorySchemas[name]
}
