// Schemas of JavaScript libraries, and their verdicts about texts.
//
//     node tests/schema_libraries.mjs DIR            writes {"name", "schema"} per line
//     node tests/schema_libraries.mjs DIR TEXTS      reads {"name", "text"} per line, writes null or an error of the library
//                                                    or of ajv, which judges all texts; with {"schema", "text"}, of ajv
//
// DIR has node_modules with zod, zod3 (zod@3), zod-to-json-schema, @sinclair/typebox, valibot, @valibot/to-json-schema,
// arktype, effect, joi, joi-to-json, ajv and ajv-formats. A library that is not installed is left out.
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";
import {readFileSync} from "node:fs";
import {join} from "node:path";

const require = createRequire(join(process.argv[2], "x.js"));
const cases = new Map();  // name: {schema, accepts}
const load = async (name) => {
    try {
        return await import(pathToFileURL(require.resolve(name)));
    } catch {
        return null;
    }
};
const add = (library, types, schema, accepts) => {
    for (const [name, type] of Object.entries(types))
        cases.set(library + "." + name, {schema: schema(type), accepts: (value) => accepts(type, value)});
};

// What zod 3 and 4 have in common.
const zodTypes = (z) => ({
    string: z.string().min(1).max(20), email: z.string().email(), uuid: z.string().uuid(), url: z.string().url(),
    regex: z.string().regex(/^[A-Z]{2}-\d{3}$/), starts: z.string().startsWith("ab").max(9), length: z.string().length(5),
    number: z.number().min(-1.5).max(99), integer: z.number().int().positive().max(1000), multiple: z.number().multipleOf(0.25).min(0).max(5),
    boolean: z.boolean(), nothing: z.null(), literal: z.literal("x"), nullable: z.string().max(5).nullable(),
    enumeration: z.enum(["red", "green", "blue"]), native: z.nativeEnum({a: 1, b: "two"}),
    array: z.array(z.number().int()).min(1).max(4), tuple: z.tuple([z.string().max(4), z.boolean()]),
    rest: z.tuple([z.boolean()]).rest(z.number().int()).and(z.array(z.any()).max(4)),
    object: z.object({a: z.string().max(8), b: z.number().int().optional()}), strict: z.object({a: z.boolean()}).strict(),
    loose: z.object({a: z.boolean()}).passthrough(), catchall: z.object({a: z.boolean()}).catchall(z.boolean()),
    partial: z.object({a: z.boolean(), b: z.null()}).partial(), deep: z.object({a: z.object({b: z.array(z.object({c: z.null()})).max(2)})}),
    union: z.union([z.string().max(4), z.number().int(), z.object({a: z.boolean()})]),
    discriminated: z.discriminatedUnion("type", [z.object({type: z.literal("a"), x: z.boolean()}), z.object({type: z.literal("b"), y: z.null()})]),
    intersection: z.intersection(z.object({a: z.boolean()}), z.object({b: z.null()})),
    extended: z.object({a: z.boolean()}).extend({b: z.boolean()}), record: z.record(z.string().max(3), z.boolean()),
    fallback: z.object({a: z.boolean().default(true)}), described: z.object({a: z.boolean().describe("an a")}),
    datetime: z.string().datetime({offset: true}), date: z.string().date(), duration: z.string().duration(),
    base64: z.string().base64().max(20), nano: z.string().nanoid(), cuid2: z.string().cuid2().max(12), ulid: z.string().ulid(),
});

const zod4 = await load("zod");
if (zod4?.z.toJSONSchema) {
    const {z} = zod4;
    const Node = z.object({value: z.boolean(), get children() { return z.array(Node).max(1); }});
    const types = {
        ...zodTypes(z), listedRecord: z.record(z.enum(["b", "a"]), z.boolean()), partialRecord: z.partialRecord(z.enum(["b", "a"]), z.boolean()),
        isoDuration: z.iso.duration(), isoTime: z.iso.time(), isoDate: z.iso.date(), isoDatetime: z.iso.datetime(), int32: z.int32(),
        float32: z.float32(), hostname: z.hostname(), cidr: z.cidrv4(), ipv6: z.ipv6(), e164: z.e164(), jwt: z.string().max(10),
        template: z.templateLiteral(["id-", z.number().int()]), recursive: Node, emoji: z.emoji(),
        unicodeEmail: z.email({pattern: z.regexes.unicodeEmail}), includes: z.string().includes("x+y").max(9), email4: z.email(),
        uuidv7: z.uuidv7(), stringbool: z.enum(["yes", "no"]), keyof: z.object({a: z.null(), b: z.null()}).keyof(),
    };
    add("zod4", types, (t) => z.toJSONSchema(t), (t, value) => t.safeParse(value).error?.message);
}

const zod3 = await load("zod3"), convert = await load("zod-to-json-schema");
if (zod3 && convert) {
    const {z} = zod3;
    const Node = z.lazy(() => z.object({value: z.boolean(), children: z.array(Node).max(1)}));
    const types = {
        ...zodTypes(z), set: z.set(z.enum(["a", "b", "c"])), map: z.record(z.enum(["b", "a"]), z.boolean()), recursive: z.object({a: Node}),
        time: z.string().time(), ip: z.string().ip(), multiline: z.string().regex(/^a.b$/ms).max(9), insensitive: z.string().regex(/^ab$/i), emoji: z.string().emoji(),
    };
    const verdict = (t, value) => t.safeParse(t instanceof z.ZodSet ? new Set(value) : value).error?.message;
    add("zod3", types, (t) => convert.zodToJsonSchema(t, {applyRegexFlags: true}), verdict);
}

// ajv's errors about a value; none for a schema that it cannot compile. Without "$schema", TypeBox writes that of 2019-09.
const formats = (await load("ajv-formats"))?.default, validators = new Map();
const [Ajv, Ajv2019, Ajv2020] = await Promise.all(["ajv", "ajv/dist/2019.js", "ajv/dist/2020.js"].map(async (name) => (await load(name))?.default));
const compile = (schema) => {
    const uri = schema.$schema ?? "";
    for (const Draft of uri.includes("draft-0") ? [Ajv] : uri.includes("2019") ? [Ajv2019] : [Ajv2020, Ajv2019]) {
        try {
            return formats(new Draft({strict: false, logger: false})).compile(JSON.parse(JSON.stringify(schema)));
        } catch {}
    }
    return () => true;
};
const judge = (key, schema, value) => {
    if (!formats || typeof schema !== "object") return undefined;
    if (!validators.has(key)) validators.set(key, compile(schema));
    return validators.get(key)(value) ? undefined : "ajv: " + JSON.stringify(validators.get(key).errors);
};

const typebox = await load("@sinclair/typebox");
if (typebox && formats) {
    const {Type} = typebox;
    const Recursive = Type.Recursive((T) => Type.Object({id: Type.Boolean(), nodes: Type.Array(T, {maxItems: 1})}), {$id: "Node"});
    const module = Type.Module({A: Type.Object({b: Type.Ref("B")}), B: Type.Array(Type.Ref("A"), {maxItems: 1})});
    const A = Type.Object({a: Type.Boolean()}), B = Type.Object({b: Type.Null()});
    const types = {
        string: Type.String({minLength: 1, maxLength: 9}), pattern: Type.String({pattern: "^[ab]{3}$"}), number: Type.Number({minimum: 0, exclusiveMaximum: 9}),
        integer: Type.Integer({multipleOf: 3, minimum: 0, maximum: 99}), literal: Type.Literal("x"), boolean: Type.Boolean(), nothing: Type.Null(),
        union: Type.Union([Type.String({maxLength: 4}), Type.Integer(), A]), enumeration: Type.Enum({a: "x", b: 2}), optional: Type.Object({a: Type.Optional(Type.Boolean())}),
        array: Type.Array(Type.Boolean(), {minItems: 1, maxItems: 4}), set: Type.Array(Type.Union([Type.Literal("a"), Type.Literal("b"), Type.Literal("c")]), {uniqueItems: true, maxItems: 3}),
        tuple: Type.Tuple([Type.Boolean(), Type.Null()]), contains: Type.Array(Type.Integer({minimum: 0, maximum: 3}), {contains: Type.Literal(1), maxItems: 5}),
        object: A, closed: Type.Object({a: Type.Boolean()}, {additionalProperties: false}), open: Type.Object({a: Type.Boolean()}, {additionalProperties: Type.Boolean()}),
        record: Type.Record(Type.String({maxLength: 3}), Type.Boolean()), listedRecord: Type.Record(Type.Union([Type.Literal("a"), Type.Literal("b")]), Type.Boolean()),
        patternRecord: Type.Record(Type.RegExp("^[a-c]$"), Type.Boolean(), {maxProperties: 3}), composite: Type.Composite([A, B]), intersect: Type.Intersect([A, B]),
        unevaluated: Type.Intersect([A, B], {unevaluatedProperties: false}), not: Type.Not(Type.String(), {type: ["boolean", "integer", "string"]}), partial: Type.Partial(A), keyof: Type.KeyOf(Type.Composite([A, B])),
        template: Type.TemplateLiteral("item-${1|2|3}"), recursive: Recursive, module: module.Import("A"), email: Type.String({format: "email"}), uri: Type.String({format: "uri"}),
        datetime: Type.String({format: "date-time"}), date: Type.String({format: "date"}), time: Type.String({format: "time"}), duration: Type.String({format: "duration"}),
        ipv4: Type.String({format: "ipv4"}), ipv6: Type.String({format: "ipv6"}), hostname: Type.String({format: "hostname"}), uuid: Type.String({format: "uuid"}), regex: Type.String({format: "regex", maxLength: 9}),
        pointer: Type.String({format: "json-pointer"}), int32: Type.Integer({format: "int32"}), dependent: Type.Object({a: Type.Optional(Type.Boolean()), b: Type.Optional(Type.Null())}, {dependentRequired: {a: ["b"]}}),
        dependentSchemas: Type.Object({a: Type.Optional(Type.Boolean())}, {dependentSchemas: {a: {required: ["b"], properties: {b: {type: "null"}}}}}),
        propertyNames: Type.Object({}, {propertyNames: {enum: ["x", "y"]}, additionalProperties: {type: "boolean"}}), conditional: {type: "object", properties: {a: {type: "boolean"}}, required: ["a"], if: {properties: {a: {const: true}}}, then: {required: ["b"], properties: {b: {type: "null"}}}},
    };
    add("typebox", types, (t) => t, () => undefined); // ajv is its validator
}

const valibot = await load("valibot"), toJson = await load("@valibot/to-json-schema");
if (valibot && toJson) {
    const v = valibot, p = v.pipe;
    const types = {
        string: p(v.string(), v.minLength(1), v.maxLength(9)), email: p(v.string(), v.email()), uuid: p(v.string(), v.uuid()), regex: p(v.string(), v.regex(/^[ab]{3}$/)),
        number: p(v.number(), v.minValue(0), v.maxValue(9)), integer: p(v.number(), v.integer(), v.minValue(0), v.maxValue(99)), boolean: v.boolean(), nothing: v.null(), literal: v.literal("x"),
        picklist: v.picklist(["a", "b"]), array: p(v.array(v.boolean()), v.maxLength(4)), tuple: v.tuple([v.boolean(), v.null()]), object: v.object({a: v.boolean()}), strict: v.strictObject({a: v.boolean()}),
        loose: v.looseObject({a: v.boolean()}), optional: v.object({a: v.optional(v.boolean())}), nullable: v.nullable(v.boolean()), union: v.union([v.boolean(), v.null()]), record: v.record(p(v.string(), v.maxLength(3)), v.boolean()),
        variant: v.variant("t", [v.object({t: v.literal("a"), x: v.boolean()}), v.object({t: v.literal("b"), y: v.null()})]), intersect: v.intersect([v.object({a: v.boolean()}), v.object({b: v.null()})]),
        isoTimestamp: p(v.string(), v.isoTimestamp()), isoDate: p(v.string(), v.isoDate()), ipv4: p(v.string(), v.ipv4()), ipv6: p(v.string(), v.ipv6()), url: p(v.string(), v.url()), nonEmpty: p(v.array(v.boolean()), v.nonEmpty(), v.maxLength(3)),
    };
    add("valibot", types, (t) => toJson.toJsonSchema(t, {errorMode: "ignore"}), (t, value) => v.safeParse(t, value).issues?.[0].message);
}

const arktype = await load("arktype");
if (arktype) {
    const {type, scope} = arktype;
    const types = {
        string: type("1 <= string <= 9"), length: type("string == 5"), regex: type(/^[A-Z]{2}-\d{3}$/), number: type("-1.5 < number < 9"), integer: type("0 <= number.integer <= 99"),
        multiple: type("(number % 5) <= 999").and("number >= 0"), email: type("string.email"), uuid: type("string.uuid"), uuid7: type("string.uuid.v7"), ip: type("string.ip"), iso: type("string.date.iso"), semver: type("string.semver"),
        hex: type("string.hex"), digits: type("string.digits"), alpha: type("string.alpha"), alphanumeric: type("string.alphanumeric"), base64: type("string.base64"), base64url: type("string.base64.url"), trimmed: type("string.trim.preformatted"),
        literal: type("'a' | 'b' | 3 | null | true"), union: type("string <= 3 | number.integer | boolean"), array: type("1 <= (boolean[]) <= 4"), tuple: type(["boolean", "null"]), optionalItem: type(["boolean", "null?"]), rest: type(["boolean", "...", "null[]"]),
        object: type({a: "boolean", "b?": "null"}), closed: type({"+": "reject", a: "boolean"}), deep: type({a: {b: "(string <= 3)[] <= 2"}}), variant: type({t: "'a'", x: "boolean"}).or({t: "'b'", y: "null"}), intersection: type({a: "boolean"}).and({b: "null"}),
        record: type({"[string]": "boolean"}), patternRecord: type({"[/^[ab]$/]": "boolean"}), recursive: scope({node: {v: "boolean", "kids?": "node[] <= 1"}}).export().node, unknown: type("unknown"), anyObject: type("object"),
    };
    add("arktype", types, (t) => t.toJsonSchema(), (t, value) => { const out = t(value); return out instanceof type.errors ? out.summary : undefined; });
}

const effect = await load("effect");
if (effect?.JSONSchema) {
    const S = effect.Schema;
    const Tree = S.Struct({v: S.Boolean, kids: S.Array(S.suspend(() => Tree)).pipe(S.maxItems(1))}).annotations({identifier: "Tree"});
    const types = {
        string: S.String.pipe(S.minLength(1), S.maxLength(9)), nonEmpty: S.NonEmptyString.pipe(S.maxLength(9)), length: S.String.pipe(S.length(5)), pattern: S.String.pipe(S.pattern(/^[ab]{3}$/)), starts: S.String.pipe(S.startsWith("ab"), S.maxLength(5)),
        ends: S.String.pipe(S.endsWith("ab"), S.maxLength(5)), trimmed: S.Trimmed.pipe(S.maxLength(5)), lower: S.Lowercased.pipe(S.maxLength(5)), upper: S.Uppercased.pipe(S.maxLength(5)), capital: S.Capitalized.pipe(S.maxLength(5)), uuid: S.UUID, ulid: S.ULID,
        integer: S.Int.pipe(S.between(0, 99)), number: S.Number.pipe(S.greaterThan(0), S.lessThanOrEqualTo(9)), multiple: S.Number.pipe(S.multipleOf(0.25), S.between(0, 5)), positive: S.Positive, finite: S.Finite, boolean: S.Boolean, nothing: S.Null,
        literal: S.Literal("a", 1, true, null), enumeration: S.Enums({A: "a", B: 2}), template: S.TemplateLiteral("a", S.String, "b"), array: S.Array(S.Boolean).pipe(S.minItems(1), S.maxItems(4)), nonEmptyArray: S.NonEmptyArray(S.Boolean).pipe(S.maxItems(3)),
        tuple: S.Tuple(S.Boolean, S.Null), optionalItem: S.Tuple(S.Boolean, S.optionalElement(S.Null)), rest: S.Tuple([S.Boolean], S.Null).pipe(S.maxItems(4)), object: S.Struct({a: S.Boolean, b: S.optional(S.Null)}), record: S.Record({key: S.String.pipe(S.maxLength(3)), value: S.Boolean}),
        listedRecord: S.Record({key: S.Literal("a", "b"), value: S.Boolean}), templateRecord: S.Record({key: S.TemplateLiteral("a", S.String), value: S.Boolean}), open: S.Struct({a: S.Boolean}, S.Record({key: S.String, value: S.Boolean})), nullable: S.NullOr(S.Boolean),
        union: S.Union(S.String.pipe(S.maxLength(3)), S.Boolean), variant: S.Union(S.Struct({t: S.Literal("a"), x: S.Boolean}), S.Struct({t: S.Literal("b"), y: S.Null})), recursive: Tree, extended: S.extend(S.Struct({a: S.Boolean}), S.Struct({b: S.Null})), empty: S.Struct({}),
    };
    add("effect", types, (t) => effect.JSONSchema.make(t), (t, value) => { const out = S.decodeUnknownEither(t)(value); return effect.Either.isLeft(out) ? out.left.message : undefined; });
}

// joi-to-json drops what JSON Schema lacks, so joi itself would reject more than the schema says.
const Joi = (await load("joi"))?.default, parseJoi = (await load("joi-to-json"))?.default;
if (Joi && parseJoi) {
    const ab = Joi.object({a: Joi.boolean(), b: Joi.boolean()});
    const types = {
        string: Joi.string().min(1).max(9), email: Joi.string().email(), uri: Joi.string().uri(), guid: Joi.string().guid(), date: Joi.date().iso(), hostname: Joi.string().hostname(), pattern: Joi.string().pattern(/^[ab]{3}$/), listed: Joi.string().valid("a", "b"),
        unlisted: Joi.string().invalid("a").max(1), nullable: Joi.string().allow(null).max(3), number: Joi.number().min(0).max(9), open: Joi.number().greater(0).less(3), integer: Joi.number().integer().min(0).max(99), multiple: Joi.number().multiple(5).min(0).max(99), boolean: Joi.boolean(),
        array: Joi.array().items(Joi.boolean()).min(1).max(4), ordered: Joi.array().ordered(Joi.boolean().required(), Joi.number().required()), unique: Joi.array().items(Joi.string().valid("a", "b", "c")).unique().max(3), has: Joi.array().items(Joi.number().integer().min(0).max(3)).has(Joi.number().valid(1)).max(4),
        object: Joi.object({a: Joi.boolean().required(), b: Joi.valid(null)}), unknown: Joi.object({a: Joi.boolean().required()}).unknown(), patternKeys: Joi.object().pattern(/^[ab]$/, Joi.boolean()), listedKeys: Joi.object().pattern(Joi.string().valid("a", "b"), Joi.boolean()),
        and: ab.and("a", "b"), or: ab.or("a", "b"), xor: ab.xor("a", "b"), oxor: ab.oxor("a", "b"), nand: ab.nand("a", "b"), with: ab.with("a", "b"), without: ab.without("a", ["b"]), forbidden: Joi.object({a: Joi.boolean().required(), b: Joi.forbidden()}), alternatives: Joi.alternatives().try(Joi.boolean(), Joi.valid(null)),
        one: Joi.alternatives().try(Joi.number().integer().min(0).max(9), Joi.string().max(3)).match("one"), when: Joi.object({a: Joi.boolean().required(), b: Joi.when("a", {is: true, then: Joi.number().integer().min(0).required(), otherwise: Joi.string().max(3)})}),
        link: Joi.object({v: Joi.boolean().required(), kids: Joi.array().items(Joi.link("#node")).max(1)}).id("node"), nested: Joi.object({a: Joi.object({b: Joi.array().items(Joi.object({c: Joi.boolean().required()})).max(2)}).required()}),
    };
    add("joi", types, (t) => parseJoi(t), () => undefined);
}

const input = process.argv[3] ? readFileSync(process.argv[3], "utf8") : "";
if (input) {
    for (const line of input.trim().split("\n")) {
        const {name, schema, text} = JSON.parse(line), value = JSON.parse(text);
        const verdict = name ? cases.get(name).accepts(value) ?? judge(name, cases.get(name).schema, value) : judge(JSON.stringify(schema), schema, value);
        console.log(JSON.stringify(verdict ?? null));
    }
} else {
    for (const [name, {schema}] of cases) console.log(JSON.stringify({name, schema}));
}
