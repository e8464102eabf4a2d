package flowcontrol

import (
	"maps"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// Compiler makes configurations one after the other; what did not change between two
// is not made again. It is for one goroutine at a time.
type Compiler struct {
	schemas map[string]*rules // given ones
	levels  map[string]*plan  // given ones
	// mandatory ones stand in for given ones.
	mandatorySchemas map[string]*rules
	mandatoryLevels  map[string]*plan

	index  index
	config *Config // made last; nil when something was changed since
	plans  *plans  // the same
}

// NewCompiler returns one that was given no objects.
func NewCompiler() *Compiler {
	c := &Compiler{
		schemas: map[string]*rules{}, levels: map[string]*plan{},
		mandatorySchemas: map[string]*rules{}, mandatoryLevels: map[string]*plan{}, index: newIndex(),
	}
	for _, s := range mandatorySchemas() {
		r := rulesOf(s)
		c.mandatorySchemas[s.Name] = r
		c.index.put(r)
	}
	for _, l := range mandatoryLevels() {
		c.mandatoryLevels[l.Name] = planOf(l)
	}
	return c
}

// PutSchema takes a flow schema that is new or has changed. It is not kept.
func (c *Compiler) PutSchema(s *flowcontrolv1.FlowSchema) {
	c.replace(s.Name, rulesOf(s))
}

// DropSchema forgets a flow schema.
func (c *Compiler) DropSchema(name string) { c.replace(name, nil) }

func (c *Compiler) replace(name string, next *rules) {
	before := c.schemas[name]
	if before == nil {
		before = c.mandatorySchemas[name]
	}
	if before != nil {
		c.index.drop(before)
	}
	if next != nil {
		c.schemas[name] = next
	} else {
		delete(c.schemas, name)
		next = c.mandatorySchemas[name]
	}
	if next != nil {
		c.index.put(next)
	}
	c.config = nil
}

// PutLevel takes a priority level that is new or has changed. It is not kept.
func (c *Compiler) PutLevel(l *flowcontrolv1.PriorityLevelConfiguration) {
	c.levels[l.Name] = planOf(l)
	c.config, c.plans = nil, nil
}

// DropLevel forgets a priority level.
func (c *Compiler) DropLevel(name string) {
	delete(c.levels, name)
	c.config, c.plans = nil, nil
}

// Config is what all that it was given says.
func (c *Compiler) Config() *Config {
	if c.plans == nil {
		c.plans = &plans{maps.Clone(c.mandatoryLevels)}
		for name, p := range c.levels {
			if must := c.mandatoryLevels[name]; must != nil && (must.kind == exempt) != (p.kind == exempt) {
				kept := *must
				kept.uid = p.uid // a damaged object does not change what it is
				p = &kept
			}
			c.plans.of[name] = p
		}
		c.config = nil
	}
	if c.config == nil {
		c.config = &Config{
			index: c.index.copy(), plans: c.plans, exempt: c.either(Exempt), last: c.either(CatchAll),
		}
	}
	return c.config
}

// either the given schema of a name or the mandatory one, if that one leads nowhere.
func (c *Compiler) either(name string) *rules {
	if r := c.schemas[name]; r != nil && c.plans.of[r.level] != nil {
		return r
	}
	return c.mandatorySchemas[name]
}
