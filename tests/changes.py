"""The small changes that are made in a syntax tree, each with its description and the text that it puts in."""

import ast
import copy

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
PAIRS = {"min": "max", "any": "all", "up": "down", "floor": "ceil"}
NAMES = PAIRS | {other: name for name, other in PAIRS.items()}
MESSAGES = {"__repr__", "__str__"}
LOOSE = (ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp, ast.IfExp, ast.Lambda, ast.NamedExpr)


class Changes(ast.NodeVisitor):
    """Collects (scope, statement, node, description, replacing text) over a tree."""

    def __init__(self, tree: ast.Module):
        self.found: list[tuple[str, ast.stmt, ast.expr | ast.stmt, str, str]] = []
        self.scope: list[str] = []
        self.statement: ast.stmt
        for statement in tree.body:
            self.visit(statement)

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, ast.stmt):
            super().visit(node)
            return
        outer = getattr(self, "statement", None)
        self.statement = node
        super().visit(node)
        if outer is not None:
            self.statement = outer

    def add(self, node: ast.expr | ast.stmt, change: str, new: ast.AST | str) -> None:
        text = new if isinstance(new, str) else ast.unparse(new)
        if isinstance(new, LOOSE):
            text = f"({text})"
        self.found.append((".".join(self.scope), self.statement, node, change, text))

    def swap(self, node: ast.expr, **fields: object) -> None:
        """The node with some fields changed."""
        new = copy.copy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        self.add(node, f"{_short(node)} -> {_short(new)}", new)

    # What is passed over, here and in `visit_keyword`: texts for people, types, decorators, and checks of types.

    def _pass_over(self, node: ast.AST) -> None: ...

    visit_Assert = visit_JoinedStr = visit_Import = visit_ImportFrom = _pass_over

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            if isinstance(node.value, ast.Call):
                self.add(node, f"no {_short(node.value)}", "pass")
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self.add(node, f"no {_short(node)}", "pass")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        if node.name not in MESSAGES:
            self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._body(node)

    def _body(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self.scope.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.scope.pop()

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        is_type = not self.scope and any(name == name.title().replace("_", "") for name in names)
        if "__all__" not in names and not is_type:
            for target in node.targets:
                self.visit(target)
            self.visit(node.value)

    # What is changed.

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                self.swap(node, ops=[*node.ops[:place], other(), *node.ops[place + 1 :]])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = ARITHMETIC[type(node.op)]()
        old, new = (_short(ast.BinOp(ast.Name(""), op, node.right)).strip() for op in (node.op, other))
        changed = ast.BinOp(node.left, other, node.right)
        self.add(node, f"{old} -> {new}", changed)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        changed = ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
        self.add(node, f"{_short(node)} -> {_short(changed)}", changed)
        self.add(node, f"no {_short(node)}", "pass")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.swap(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for place, operand in enumerate(node.values):
            rest = [*node.values[:place], *node.values[place + 1 :]]
            word = "and" if isinstance(node.op, ast.And) else "or"
            self.add(node, f"{word}: drops {_short(operand)}", ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.add(node, f"{_short(node)} -> {_short(node.operand)}", f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool():
                others: list[object] = [not node.value]
            case int():
                others = [node.value + 1, node.value - 1]
            case float():
                others = [node.value + 1, node.value * 2, node.value / 2]
            case str() if " " not in node.value:
                others = ["XX" + node.value]
            case _:
                others = []
        for other in others:
            self.add(node, f"{node.value!r} -> {other!r}", f"({other!r})")

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in NAMES and isinstance(node.ctx, ast.Load):
            self.swap(node, id=NAMES[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in NAMES and isinstance(node.ctx, ast.Load):
            self.swap(node, attr=NAMES[node.attr])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "up":
            self.add(node, f"half of {_short(node)}", f"({ast.unparse(node)} / 2)")
        for place, argument in enumerate(node.args):
            if len(node.args) + len(node.keywords) > 1:
                fewer = ast.Call(node.func, [*node.args[:place], *node.args[place + 1 :]], node.keywords)
                self.add(node, f"{_short(node.func)}: drops {_short(argument)}", fewer)
        for place, keyword in enumerate(node.keywords):
            if keyword.arg != "strict":
                fewer = ast.Call(node.func, node.args, [*node.keywords[:place], *node.keywords[place + 1 :]])
                self.add(node, f"{_short(node.func)}: drops {_short(keyword)}", fewer)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.visit(node.value)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.add(
            node, f"swaps {_short(node.body)} and {_short(node.orelse)}", ast.IfExp(node.test, node.orelse, node.body)
        )
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.add(node.test, f"if not {_short(node.test)}", f"not ({ast.unparse(node.test)})")
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self.add(node.test, "while False", "False")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self.add(test, f"comprehension: no if {_short(test)}", "True")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and ast.unparse(node.value) != "None":
            self.add(node, "return None", "return None")
            self.visit(node.value)

    def visit_Break(self, node: ast.Break) -> None:
        self.add(node, "continue", "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add(node, "break", "break")


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:40]} ... {text[-25:]}"
